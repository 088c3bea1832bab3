/** Real HTTP servers of each framework, with one route that takes a lock, and a client that can go away. */

import { once } from "node:events";
import type { IncomingHttpHeaders, Server } from "node:http";
import { createServer, request as sendRequest } from "node:http";
import type { AddressInfo } from "node:net";
import { serve as serveHono } from "@hono/node-server";
import type { Context } from "hono";
import { Hono } from "hono";
import type { Locks } from "../../src/client/locks.ts";
import type { Refusal, RequestLock } from "../../src/middleware/index.ts";
import {
  createExpressMiddleware,
  createFastifyHook,
  createHonoMiddleware,
  requestLock,
} from "../../src/middleware/index.ts";
import type { Duration } from "../../src/util/duration.ts";
import { currentLock } from "../../src/wrapping/current-lock.ts";
import { loadInterop } from "./interop.ts";
import { onCleanup } from "./server-fixture.ts";

/** What runs under the lock of `POST /orders/:id`; the text is the response. */
type Handler = (id: string, requestLock: RequestLock) => Promise<string>;

/** The options that the frameworks have in common. */
interface SharedOptions {
  readonly wait?: Duration;
  readonly maxHold?: Duration;
  readonly busyStatus?: 409 | 423;
  readonly isKeyFunction?: true;
  readonly onRefused?: (refusal: Refusal) => string;
}

export interface WebServer {
  readonly port: number;
  close(): Promise<void>;
}

export type StartServer = (locks: Locks, options: SharedOptions, handler: Handler) => Promise<WebServer>;

/** Methods as the tests call them. */
// biome-ignore lint/suspicious/noExplicitAny: the types of Express and Fastify are not installed with the project
type Untyped = any;

const PATH = "/orders/:id";
const REFUSED_STATUS = 418;

/** With a function as the key: "free" needs no lock, "none" yields no key. */
function chooseKey(id: string): string | null {
  if (id === "none") return undefined as never;
  return id === "free" ? null : `order:${id}`;
}

/** What a handler sees must be one lock. */
function findLock(request: object): RequestLock {
  const found = requestLock(request);
  if (currentLock() !== found.lock) throw new Error("currentLock() is another lock");
  return found;
}

async function runHandler(handler: Handler, request: object, id: string): Promise<string> {
  return id === "free" ? "free" : handler(id, findLock(request));
}

export const startExpress: StartServer = (locks, { onRefused, isKeyFunction, ...options }, handler) => {
  const app = loadInterop("express", "frameworks")();
  // what Express prints of errors
  app.set("env", "test");
  const middleware = createExpressMiddleware(locks, {
    ...options,
    key: isKeyFunction ? ({ params }: Untyped) => chooseKey(params.id) : "order:#{params.id}",
    ...(onRefused && {
      onRefused: (refusal, _request, response: Untyped) => response.status(REFUSED_STATUS).send(onRefused(refusal)),
    }),
  });
  app.post(PATH, middleware, (request: Untyped, response: Untyped, next: (error: unknown) => void) => {
    runHandler(handler, request, request.params.id).then((text) => response.send(text), next);
  });
  return listen(createServer(app));
};

export const startFastify: StartServer = async (locks, { onRefused, isKeyFunction, ...options }, handler) => {
  const app = loadInterop("fastify", "frameworks")();
  const preHandler = createFastifyHook(locks, {
    ...options,
    key: isKeyFunction ? ({ params }: Untyped) => chooseKey(params.id) : "order:#{params.id}",
    ...(onRefused && {
      onRefused: (refusal, _request, reply: Untyped) => reply.code(REFUSED_STATUS).send(onRefused(refusal)),
    }),
  });
  app.post(PATH, { preHandler }, (request: Untyped) => runHandler(handler, request, request.params.id));
  await app.listen({ port: 0, host: "127.0.0.1" });
  return manage(app.server);
};

export const startHono: StartServer = async (locks, { onRefused, isKeyFunction, ...options }, handler) => {
  const app = new Hono();
  const middleware = createHonoMiddleware(locks, {
    ...options,
    key: isKeyFunction ? (context: Context) => chooseKey(context.req.param("id") as string) : "order:#{params.id}",
    ...(onRefused && {
      onRefused: (refusal: Refusal, context: Context) => context.text(onRefused(refusal), REFUSED_STATUS),
    }),
  });
  app.post(PATH, middleware, async (context) =>
    context.text(await runHandler(handler, context, context.req.param("id") as string)),
  );
  app.onError((_error, context) => context.text("failed", 500));
  return listen(serveHono({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }) as Server);
};

export async function listen(server: Server): Promise<WebServer> {
  if (!server.listening) await once(server.listen(0, "127.0.0.1"), "listening");
  return manage(server);
}

function manage(server: Server): WebServer {
  const close = (): Promise<void> =>
    new Promise((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  onCleanup(close);
  return { port: (server.address() as AddressInfo).port, close };
}

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

export interface PendingRequest {
  readonly answer: Promise<Answer>;
  /** Closes the connection. */
  abort(): void;
}

/** Posts to /orders/:id on a connection of its own. */
export function post({ port }: { readonly port: number }, id: string): PendingRequest {
  const path = `/orders/${id}`;
  const request = sendRequest({ host: "127.0.0.1", port, path, method: "POST", agent: false });
  const answer = new Promise<Answer>((resolve, reject) => {
    request.on("error", reject);
    request.on("response", (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (part) => {
        text += part;
      });
      response.on("end", () => resolve({ status: response.statusCode ?? 0, headers: response.headers, text }));
      response.on("error", reject);
    });
  });
  request.end();
  return { answer, abort: () => request.destroy(new Error("aborted by the test")) };
}
