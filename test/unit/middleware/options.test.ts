import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import {
  createExpressMiddleware,
  createFastifyHook,
  createHonoMiddleware,
  requestLock,
} from "../../../src/middleware/index.ts";

const CREATORS = [createExpressMiddleware, createFastifyHook, createHonoMiddleware] as unknown as readonly ((
  locks: Locks,
  options: unknown,
) => unknown)[];

test.each([
  [undefined, "options of NAME must be an object, not undefined"],
  [{}, "key must be a string or a function, not undefined"],
  [{ key: 3 }, "key must be a string or a function, not 3"],
  [{ key: "order:#{id}" }, "#{id} names no parameter of NAME, whose parameters are params: write #{params.id} for"],
  [{ key: "order:#{params.id" }, "has a reference that does not end"],
  [{ key: "k", timeout: 3 }, 'NAME has no option "timeout"'],
  [{ key: "k", signal: new AbortController().signal }, 'NAME has no option "signal"'],
  [{ key: "k", wait: "soon" }, "wait must be"],
  [{ key: "k", maxHold: -1 }, "maxHold must be"],
  [{ key: "k", ttl: 3 }, "ttl must be"],
  [{ key: "k", busyStatus: 200 }, "busyStatus must be 409 or 423, not 200"],
  [{ key: "k", onRefused: "no" }, 'onRefused must be a function, not "no"'],
])("options %o are refused when the middleware is made", (options, message) => {
  const locks = createLocks(memory());
  for (const create of CREATORS) expect(() => create(locks, options)).toThrow(message.replace("NAME", create.name));
});

test("locks must be a Locks", () => {
  for (const create of CREATORS) {
    expect(() => create("redis://host" as never, { key: "k" })).toThrow(
      "locks must be what connect() or createLocks() returns",
    );
  }
});

test("requestLock() of a request without a lock is an error", () => {
  for (const request of [{}, null, undefined, "request"]) {
    expect(() => requestLock(request as object)).toThrow("must have passed through middleware of holdfast/middleware");
  }
});

test("a request that has ended does not refuse the next one in another process, although its client caches locks", async () => {
  const store = memoryStore();
  const clients = [1, 2].map(() => createLocks(memory({ store }), { cache: "10s" }));
  const request = {
    raw: new Request("http://127.0.0.1/"),
    param: () => ({ id: "7" }) as never,
    header: () => undefined,
  };
  for (const locks of clients) {
    const refused: string[] = [];
    const onRefused = ({ error }: { readonly error: Error }): Response => {
      refused.push(error.message);
      return new Response();
    };
    await createHonoMiddleware(locks, { key: "order:#{params.id}", onRefused })(
      { req: request },
      async () => undefined,
    );
    expect(refused).toEqual([]);
  }
  for (const locks of clients) await locks.close();
});

test("a request may pass through any number of middleware: Node.js warns of no listeners", async () => {
  const warnings: Error[] = [];
  const onWarning = (warning: Error): void => void warnings.push(warning);
  process.on("warning", onWarning);
  const locks = createLocks(memory());
  const middleware = Array.from({ length: 12 }, (_, index) =>
    createExpressMiddleware(locks, { key: () => `key ${index}` }),
  );
  const server = createServer((request, response) => {
    let handle = (): void => void response.end("done");
    for (const lock of middleware.toReversed()) {
      const next = handle;
      handle = () => lock(request as never, response, next);
    }
    handle();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    const answer = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    expect(await answer.text()).toBe("done");
    expect(warnings.filter(({ name }) => name === "MaxListenersExceededWarning")).toEqual([]);
  } finally {
    process.off("warning", onWarning);
    server.closeAllConnections();
    server.close();
    await locks.close();
  }
});
