/**
 * Faults in the middleware of holdfast/middleware: two handlers of one key run at the same time, or a request keeps
 * what it should not.
 */

import type { Mutant } from "./mutants.ts";

const tests = "test/frameworks/middleware.test.ts";
const runner = { file: "src/middleware/request-runner.ts", tests };
const nodeResponse = { file: "src/middleware/node-response.ts", tests };

export const MIDDLEWARE_MUTANTS: readonly Mutant[] = [
  {
    name: "a request whose lock stays with its process, so that other processes refuse the next ones",
    file: "src/middleware/request-runner.ts",
    find: ", cache = 0, ...others }",
    replace: ", cache, ...others }",
    tests: "test/unit/middleware/options.test.ts",
  },
  {
    ...nodeResponse,
    name: "a lock released when the client closes the connection, though the handler still runs",
    find: "await Promise.race([whenEnded, ",
    replace: 'await Promise.race([whenEnded, new Promise<void>((resolve) => response.once("close", resolve)), ',
  },
  {
    ...nodeResponse,
    name: "the end of a response that has no client taken for no end",
    find: "        resolve();\n",
    replace: "        if (!response.destroyed) resolve();\n",
  },
  {
    ...nodeResponse,
    name: "a handler called for a response that has ended",
    find: "    if (response.writableEnded) return;\n",
    replace: "",
  },
  {
    file: "src/middleware/hono.ts",
    tests,
    name: "the lock of a request of Hono released before the handler has ended",
    find: "      return handled;",
    replace: "      return Promise.resolve();",
  },
  {
    ...runner,
    name: "a request that goes on waiting though its client has gone",
    find: "signal: (attempt) => attempt.clientSignal",
    replace: "signal: () => undefined",
  },
  {
    ...runner,
    name: "a handler that is not told that its client has gone",
    find: "AbortSignal.any([lock.signal, attempt.clientSignal])",
    replace: "lock.signal",
  },
  {
    ...runner,
    name: "a handler that never ends keeps a lost lock at the store",
    find: 'await Promise.race([attempt.handle(requestLock), once(lock.signal, "abort")]);',
    replace: "await attempt.handle(requestLock);",
  },
  {
    file: "src/middleware/connection-end.ts",
    tests: "test/frameworks/middleware-ended-connections.test.ts",
    name: "a server that closes all connections taken for the end of a handler",
    find: "if (isHandler()) resolve();",
    replace: "resolve();",
  },
  {
    ...nodeResponse,
    tests: "test/frameworks/middleware-ended-connections.test.ts",
    name: "a handler that ends its connection keeps the lock",
    find: "Promise.race([whenEnded, ...watched.map((it) => it.whenEnded)])",
    replace: "whenEnded",
  },
  {
    ...nodeResponse,
    name: "a handler that destroys its request after the client has gone keeps the lock",
    find: "[response.stream ?? response.socket, response.req]",
    replace: "[response.stream ?? response.socket]",
    tests: "test/frameworks/middleware-ended-connections.test.ts",
  },
];
