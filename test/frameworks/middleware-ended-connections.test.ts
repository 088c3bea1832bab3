/** A handler that ends the connection of its request, and never the response, gives the lock back at once. */

import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:http";
import { createServer as createHttp2Server, connect as openHttp2 } from "node:http2";
import { describe, expect, test } from "vitest";
import type { Locks } from "../../src/client/locks.ts";
import { createLocks } from "../../src/client/locks.ts";
import { memory } from "../../src/drivers/memory.ts";
import { createExpressMiddleware, createFastifyHook, createHonoMiddleware } from "../../src/middleware/index.ts";
import { until } from "../../src/testing/until.ts";
import { loadInterop } from "../support/interop.ts";
import { checkLeaksAfterEach } from "../support/leak-check.ts";
import { cleanUpAfterEach, onCleanup } from "../support/server-fixture.ts";
import type { WebServer } from "../support/web-servers.ts";
import { listen, post } from "../support/web-servers.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

type Handler = (request: IncomingMessage, response: ServerResponse) => unknown;
type Start = (locks: Locks, handler: Handler) => Promise<WebServer>;
// biome-ignore lint/suspicious/noExplicitAny: the types of Express, Fastify and Hono are not installed with the project
type Untyped = any;

const OPTIONS = { key: () => "order" };

const startExpress: Start = (locks, handler) => {
  const express = loadInterop("express", "frameworks");
  const app = express();
  // the handler runs when the body has been read
  app.post("/orders/:id", createExpressMiddleware(locks, OPTIONS), express.json(), handler);
  return listen(createServer(app));
};

const startFastify: Start = async (locks, handler) => {
  const app = loadInterop("fastify", "frameworks")();
  app.post("/orders/:id", { preHandler: createFastifyHook(locks, OPTIONS) }, (request: Untyped, reply: Untyped) => {
    reply.hijack();
    handler(request.raw, reply.raw);
  });
  await app.ready();
  return listen(app.server);
};

const startNode: Start = (locks, handler) => {
  const middleware = createExpressMiddleware(locks, OPTIONS);
  return listen(
    createServer((request, response) => {
      const next = (): void => void handler(request, response);
      middleware(Object.assign(request, { params: {} }) as Untyped, response as Untyped, next);
    }),
  );
};

const WAYS: readonly (readonly [name: string, end: Handler])[] = [
  ["request.destroy()", (request) => request.destroy()],
  ["request.destroy(error)", (request) => request.destroy(new Error("refused"))],
  ["socket.destroy()", ({ socket }) => socket.destroy()],
  ["socket.resetAndDestroy()", ({ socket }) => socket.resetAndDestroy()],
  ["socket.destroySoon()", ({ socket }) => socket.destroySoon()],
  ["socket.end()", ({ socket }) => socket.end()],
  ["response.destroy()", (_request, response) => response.destroy()],
  ["socket.destroy() after a pause", later(({ socket }) => socket.destroy())],
  ["socket.destroy() inside another wrapped function", (request, response) => destroyWrapped(request, response)],
];

function later(end: Handler): Handler {
  return async (request, response) => {
    await new Promise((resolve) => setTimeout(resolve, 20));
    end(request, response);
  };
}

const otherLocks = createLocks(memory());
const destroyWrapped: Handler = otherLocks.wrap("other", ({ socket }: IncomingMessage, _response: ServerResponse) => {
  socket.destroy();
});

function openLocks(): Locks {
  const locks = createLocks(memory());
  onCleanup(() => locks.close());
  return locks;
}

function waitUntilFree(locks: Locks): Promise<boolean> {
  return until(async () => (await locks.list()).length === 0, { within: 1_000, what: "a free key" });
}

describe.each([
  ["Express", startExpress],
  ["Fastify", startFastify],
  ["node:http", startNode],
] as const)("%s", (_name, start) => {
  test.each(WAYS)("%s", async (_way, end) => {
    const locks = openLocks();
    const web = await start(locks, end);
    await expect(post(web, "7").answer).rejects.toThrow();
    await waitUntilFree(locks);
  });

  test.each(WAYS.slice(0, 2))("%s after the client has gone", async (_way, end) => {
    const locks = openLocks();
    let hasClosed = false;
    const web = await start(locks, (request, response) => {
      response.once("close", () => {
        hasClosed = true;
      });
      return until(() => hasClosed, { within: 5_000, what: "the end of the client" }).then(() =>
        end(request, response),
      );
    });
    const { answer, abort } = post(web, "7");
    await until(async () => (await locks.list()).length === 1, { within: 5_000, what: "the handler" });
    abort();
    await expect(answer).rejects.toThrow();
    await until(() => hasClosed, { within: 5_000, what: "the end of the client" });
    await waitUntilFree(locks);
  });

  test("a server that closes all connections does not end the handler: the lock is kept", async () => {
    const locks = openLocks();
    let end: () => void = () => undefined;
    const web = await start(locks, (_request, response) => {
      end = () => response.end();
    });
    const answer = post(web, "7").answer;
    await until(async () => (await locks.list()).length === 1, { within: 5_000, what: "the handler" });
    await Promise.all([expect(answer).rejects.toThrow(), web.close()]);
    expect(await locks.list()).toHaveLength(1);
    end();
    await waitUntilFree(locks);
  });
});

test("Hono: a handler that ends the connection and returns gives the lock back", async () => {
  const { Hono } = loadInterop("hono", "frameworks");
  const { serve } = loadInterop("@hono/node-server", "frameworks");
  const locks = openLocks();
  const app = new Hono();
  app.post("/orders/:id", createHonoMiddleware(locks, OPTIONS), (context: Untyped) => {
    context.env.incoming.destroy();
    return context.text("late");
  });
  const web = await listen(serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }));
  await expect(post(web, "7").answer).rejects.toThrow();
  await waitUntilFree(locks);
});

test("HTTP/2: a handler that ends its stream gives the lock back; the connection goes on", async () => {
  const locks = openLocks();
  const middleware = createExpressMiddleware(locks, OPTIONS);
  let count = 0;
  const server = createHttp2Server((request, response) => {
    const next = (): void => {
      if (++count === 1) request.stream.close();
      else response.end("second");
    };
    middleware(Object.assign(request, { params: {} }) as Untyped, response as Untyped, next);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const session = openHttp2(`http://127.0.0.1:${(server.address() as { port: number }).port}`);
  onCleanup(async () => {
    session.close();
    await new Promise((resolve) => server.close(resolve));
  });
  const send = (): Promise<string> =>
    new Promise((resolve, reject) => {
      let text = "";
      session
        .request({ ":path": "/" })
        .setEncoding("utf8")
        .on("data", (part) => (text += part))
        .on("error", reject)
        .on("close", () => resolve(text));
    });
  expect(await send()).toBe("");
  await waitUntilFree(locks);
  expect(await send()).toBe("second");
});

test("requests that follow each other on one connection replace its methods once", async () => {
  const locks = openLocks();
  const seen = new Set<unknown>();
  const web = await startNode(locks, ({ socket }, response) => {
    seen.add(socket.destroy);
    response.end();
  });
  const { Agent, request } = await import("node:http");
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  onCleanup(() => agent.destroy());
  for (let index = 0; index < 3; index++) {
    await new Promise((resolve) =>
      request({ port: web.port, host: "127.0.0.1", agent }, (response) => response.resume().on("close", resolve)).end(),
    );
  }
  expect(seen.size).toBe(1);
});
