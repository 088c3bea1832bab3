/** Middleware of holdfast/middleware in real servers of Express, Fastify and Hono, with a lock server behind them. */

import { once } from "node:events";
import { connect as openSocket } from "node:net";
import { describe, expect, test } from "vitest";
import { connect } from "../../src/client/connect.ts";
import type { Locks } from "../../src/client/locks.ts";
import type { LockLostError } from "../../src/errors.ts";
import { createExpressMiddleware } from "../../src/middleware/index.ts";
import type { RequestLock } from "../../src/middleware/request-lock.ts";
import type { ClaimInfo } from "../../src/spi/claim-info.ts";
import { until } from "../../src/testing/until.ts";
import { loadInterop } from "../support/interop.ts";
import { checkLeaksAfterEach } from "../support/leak-check.ts";
import { cleanUpAfterEach, onCleanup, startServer } from "../support/server-fixture.ts";
import type { StartServer } from "../support/web-servers.ts";
import { listen, post, startExpress, startFastify, startHono } from "../support/web-servers.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const BOUND_MS = 8_000;
const FRAMEWORKS: readonly (readonly [string, StartServer])[] = [
  ["Express", startExpress],
  ["Fastify", startFastify],
  ["Hono", startHono],
];

interface LockServer {
  openLocks(): Promise<Locks>;
  list(): Promise<readonly ClaimInfo[]>;
  stop(): Promise<void>;
  startAgain(): Promise<void>;
}

async function startLockServer(): Promise<LockServer> {
  const server = await startServer();
  const openLocks = async (): Promise<Locks> => {
    const locks = await connect(`holdfast+unix:${server.path}`, { label: "a secret host" });
    onCleanup(() => locks.close());
    return locks;
  };
  const observer = await openLocks();
  return {
    openLocks,
    list: () => observer.list(),
    stop: () => server.close(),
    async startAgain() {
      await startServer({ in: server.dir });
    },
  };
}

/** A handler that ends when the test says so. */
class HeldHandler {
  readonly begun: RequestLock[] = [];
  #endAll: () => void = () => {};
  readonly #ended: Promise<void> = new Promise((resolve) => {
    this.#endAll = resolve;
  });

  run = async (_id: string, requestLock: RequestLock): Promise<string> => {
    this.begun.push(requestLock);
    await this.#ended;
    return "done";
  };

  end(): void {
    this.#endAll();
  }

  async firstBegun(): Promise<RequestLock> {
    return until(() => this.begun[0], { within: BOUND_MS, what: "the handler" });
  }
}

function waitUntilFree(server: LockServer): Promise<boolean> {
  return until(async () => (await server.list()).length === 0, { within: BOUND_MS, what: "a store without claims" });
}

describe.each(FRAMEWORKS)("%s", (_name, start) => {
  test("handlers of one key never overlap, on two servers; every request is answered", async () => {
    const server = await startLockServer();
    const running = new Map<string, number>();
    let [mostOfOneKey, calls] = [0, 0];
    const handler = async (id: string): Promise<string> => {
      calls++;
      running.set(id, (running.get(id) ?? 0) + 1);
      mostOfOneKey = Math.max(mostOfOneKey, running.get(id) as number);
      await new Promise(setImmediate);
      running.set(id, (running.get(id) as number) - 1);
      return id;
    };
    const servers = [
      await start(await server.openLocks(), { wait: "30s" }, handler),
      await start(await server.openLocks(), { wait: "30s" }, handler),
    ] as const;
    const requests = Array.from({ length: 120 }, (_, index) => post(servers[index % 2 === 0 ? 0 : 1], `o${index % 5}`));
    const answers = await Promise.all(requests.map(({ answer }) => answer));
    expect(answers.map(({ status, text }) => `${status} ${text}`)).toEqual(
      answers.map((_, index) => `200 o${index % 5}`),
    );
    expect(calls).toBe(120);
    expect(mostOfOneKey).toBe(1);
    await waitUntilFree(server);
  });

  test("a second request is refused at once with 409, and the answer does not name the holder", async () => {
    const server = await startLockServer();
    const handler = new HeldHandler();
    const web = await start(await server.openLocks(), {}, handler.run);
    const first = post(web, "7");
    await handler.firstBegun();
    expect((await server.list()).map(({ locks }) => locks[0].key)).toEqual(["order:7"]);
    const { status, headers, text } = await post(web, "7").answer;
    expect([status, headers["retry-after"]]).toEqual([409, "1"]);
    expect(headers["content-type"]).toMatch(/^application\/problem\+json(;|$)/);
    expect(JSON.parse(text)).toEqual({
      title: "Conflict",
      status: 409,
      detail: "another request for this resource is running",
    });
    handler.end();
    expect(await first.answer).toMatchObject({ status: 200, text: "done" });
    expect(handler.begun).toHaveLength(1);
    await waitUntilFree(server);
  });

  test("busyStatus after a wait that ran out; onRefused answers itself", async () => {
    const server = await startLockServer();
    const holder = await (await server.openLocks()).acquire("order:7");
    const unused = async (): Promise<string> => "unexpected";
    const web = await start(await server.openLocks(), { wait: "50ms", busyStatus: 423 }, unused);
    expect((await post(web, "7").answer).status).toBe(423);
    const own = await start(
      await server.openLocks(),
      { onRefused: ({ status, error }) => `${status} ${error.name}` },
      unused,
    );
    expect(await post(own, "7").answer).toMatchObject({ status: 418, text: "409 LockTimeoutError" });
    await holder.release();
  });

  test("a client that goes away aborts the signal; the lock is kept until the handler ends", async () => {
    const server = await startLockServer();
    const handler = new HeldHandler();
    const web = await start(await server.openLocks(), {}, handler.run);
    const first = post(web, "7");
    const { signal, lock } = await handler.firstBegun();
    first.abort();
    await expect(first.answer).rejects.toThrow();
    await until(() => signal.aborted, { within: BOUND_MS, what: "the signal" });
    expect(lock.signal.aborted).toBe(false);
    expect((await post(web, "7").answer).status).toBe(409);
    expect(await server.list()).toHaveLength(1);
    expect(handler.begun).toHaveLength(1);
    handler.end();
    await waitUntilFree(server);
    expect(await post(web, "7").answer).toMatchObject({ status: 200, text: "done" });
    await waitUntilFree(server);
  });

  test("a waiting request whose client goes away leaves the queue and never runs", async () => {
    const server = await startLockServer();
    const holder = await (await server.openLocks()).acquire("order:7");
    const handler = new HeldHandler();
    const web = await start(await server.openLocks(), { wait: "1m" }, handler.run);
    const waiting = post(web, "7");
    await until(async () => (await server.list()).length === 2, { within: BOUND_MS, what: "the waiting claim" });
    waiting.abort();
    await expect(waiting.answer).rejects.toThrow();
    await until(async () => (await server.list()).length === 1, { within: BOUND_MS, what: "the end of the wait" });
    await holder.release();
    handler.end();
    expect((await post(web, "7").answer).status).toBe(200);
    expect(handler.begun).toHaveLength(1);
  });

  test("a lost lock aborts the signal; the handler answers", async () => {
    const server = await startLockServer();
    const operator = await server.openLocks();
    const handler = new HeldHandler();
    const web = await start(await server.openLocks(), {}, handler.run);
    const first = post(web, "7");
    const { signal, lock } = await handler.firstBegun();
    expect(await operator.revoke("order:7", lock.token)).toBe(true);
    await until(() => signal.aborted, { within: BOUND_MS, what: "the signal" });
    expect((signal.reason as LockLostError).code).toBe("LOCK_LOST");
    handler.end();
    expect(await first.answer).toMatchObject({ status: 200, text: "done" });
    await waitUntilFree(server);
  });

  test("a handler that never ends keeps the lock until maxHold", async () => {
    const server = await startLockServer();
    const handler = new HeldHandler();
    const web = await start(await server.openLocks(), { maxHold: "200ms", wait: "10s" }, handler.run);
    const first = post(web, "7");
    const { signal } = await handler.firstBegun();
    first.abort();
    await expect(first.answer).rejects.toThrow();
    const second = post(web, "7");
    await until(() => handler.begun.length === 2, { within: BOUND_MS, what: "the second request" });
    expect(signal.aborted).toBe(true);
    handler.end();
    expect((await second.answer).status).toBe(200);
    await waitUntilFree(server);
  });

  test("a store that cannot be reached, and a closed client, are 503", async () => {
    const server = await startLockServer();
    const handler = new HeldHandler();
    const locks = await server.openLocks();
    const web = await start(locks, {}, handler.run);
    handler.end();
    await server.stop();
    const { status, headers, text } = await post(web, "7").answer;
    expect([status, headers["retry-after"]]).toEqual([503, "1"]);
    expect(text).toContain("cannot be determined");
    expect(handler.begun).toHaveLength(0);
    await server.startAgain();
    await until(async () => (await post(web, "7").answer).status === 200, { within: BOUND_MS, what: "the store" });
    await locks.close();
    expect((await post(web, "7").answer).status).toBe(503);
    expect(handler.begun).toHaveLength(1);
  });

  test("key: null needs no lock; text that is no valid key is 400; no key at all, or an error of the handler, is 500", async () => {
    const server = await startLockServer();
    const failing = async (): Promise<string> => {
      throw new Error("expected");
    };
    const web = await start(await server.openLocks(), { isKeyFunction: true }, failing);
    const statusOf = async (id: string): Promise<number> => (await post(web, id).answer).status;
    expect(await Promise.all(["free", "none", "%00", "7"].map(statusOf))).toEqual([200, 500, 400, 500]);
    await waitUntilFree(server);
  });

  test("requests that follow each other on one connection do not share a lock", async () => {
    const server = await startLockServer();
    const handler = new HeldHandler();
    const web = await start(await server.openLocks(), { wait: "10s" }, handler.run);
    const socket = openSocket(web.port, "127.0.0.1");
    onCleanup(() => void socket.destroy());
    let text = "";
    socket.setEncoding("utf8").on("data", (part) => {
      text += part;
    });
    await once(socket, "connect");
    const request = "POST /orders/7 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    socket.write(request + request);
    await handler.firstBegun();
    await until(async () => (await server.list()).length > 0, { within: BOUND_MS, what: "the claim" });
    expect(handler.begun).toHaveLength(1);
    handler.end();
    await until(() => text.split("HTTP/1.1 200").length === 3, { within: BOUND_MS, what: "both responses" });
    socket.write(request);
    await until(() => text.split("HTTP/1.1 200").length === 4, { within: BOUND_MS, what: "the third response" });
    expect(new Set(handler.begun.map(({ lock }) => lock)).size).toBe(3);
    socket.destroy();
    await waitUntilFree(server);
  });
});

test("Express: a response that other middleware has ended meanwhile does not reach the handler", async () => {
  const server = await startLockServer();
  const holder = await (await server.openLocks()).acquire("k");
  const locks = await server.openLocks();
  const app = loadInterop("express", "frameworks")();
  let calls = 0;
  app.use((_request: unknown, response: { send(text: string): void }, next: () => void) => {
    next();
    response.send("timed out");
  });
  app.use(createExpressMiddleware(locks, { key: "k", wait: "1m" }), () => {
    calls++;
  });
  const web = await listen((await import("node:http")).createServer(app));
  const { answer } = post(web, "7");
  expect((await answer).text).toBe("timed out");
  await holder.release();
  await waitUntilFree(server);
  expect(calls).toBe(0);
});
