// Connections that carry nothing any more and were never seen to end: a firewall, or a load balancer, has dropped them for
// being idle, or the server behind them is stopped. What each client library does then stands in the guide,
// docs/guide/redis-failures.md.

import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { createClient } from "redis";
import type { TestContext } from "vitest";
import { describe, expect, test } from "vitest";
import type { RedisClient } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { redisFromUrl } from "../../../src/drivers/redis/from-url.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks, StoreError } from "../../../src/index.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import type { TcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture } from "../../support/stores/redis-fixture.ts";

/** Clients whose first inbox goes by way of this port, under this name. */
const CLIENTS: Readonly<Record<string, (port: number, by: number, name: string) => RedisClient>> = {
  ioredis(port, proxyPort, name) {
    let times = 0;
    const duplicate = (options: object): Redis =>
      times++ === 0
        ? new Redis({ port: proxyPort, host: "127.0.0.1", ...options, connectionName: name })
        : new Redis({ port, host: "127.0.0.1", ...options });
    return Object.assign(new Redis(port, "127.0.0.1"), { duplicate });
  },
  "node-redis"(port, proxyPort, name) {
    let times = 0;
    const duplicate = (options: { socket?: object }): unknown =>
      times++ === 0
        ? createClient({ name, socket: { ...options.socket, host: "127.0.0.1", port: proxyPort } })
        : createClient({ socket: { ...options.socket, host: "127.0.0.1", port } });
    const client = createClient({ socket: { host: "127.0.0.1", port } });
    return Object.assign(client, { duplicate }) as unknown as RedisClient;
  },
};

const CONNECTION_ENDS: Readonly<Record<string, (admin: Redis, name: string) => Promise<unknown>>> = {
  "and the server does not know": async () => undefined,
  async "and the server has ended it"(admin, name) {
    const connectionList = String(await admin.call("CLIENT", "LIST", "TYPE", "pubsub"));
    const [, id = ""] = new RegExp(`^id=(\\d+) .*\\bname=${name} `, "m").exec(connectionList) ?? [];
    expect(await admin.call("CLIENT", "KILL", "ID", id)).toBe(1);
  },
};

const COMMAND_TIMEOUT_MS = 500;
const OPTIONS = { commandTimeoutMs: COMMAND_TIMEOUT_MS, warn: () => undefined } as const;
/** Two timeouts of commands and two pauses, on a busy machine. */
const REPLACED_MS = 4_000;

type OnTestFinished = TestContext["onTestFinished"];
type CreateDriver = (port: number, prefix: string, onTestFinished: OnTestFinished) => Driver;

/** Drivers that replace a command connection on which nothing is answered. */
const REPLACING: Readonly<Record<string, CreateDriver>> = {
  "a url": (port, prefix) => redisFromUrl(`redis://127.0.0.1:${port}?prefix=${prefix}`, OPTIONS),
  "a function of ioredis": (port, prefix) => redis(() => new Redis(port, "127.0.0.1"), { ...OPTIONS, prefix }),
  "a function of ioredis with a shorter timeout": (port, prefix) =>
    redis(() => new Redis(port, "127.0.0.1", { commandTimeout: 200 }), { ...OPTIONS, prefix }),
  "a function of node-redis": (port, prefix) =>
    redis(() => createClient({ socket: { host: "127.0.0.1", port } }), { ...OPTIONS, prefix }),
  "a client of ioredis with socketTimeout"(port, prefix, onTestFinished) {
    const client = new Redis(port, "127.0.0.1", { socketTimeout: COMMAND_TIMEOUT_MS });
    client.on("error", () => undefined);
    onTestFinished(() => client.disconnect());
    return redis(client, { ...OPTIONS, prefix });
  },
};

interface ProxiedLocks {
  readonly locks: Locks;
  /** Without the proxy. */
  readonly other: Locks;
  readonly proxy: TcpProxy;
  /** How often the proxy was connected to. */
  readonly connectionCount: () => number;
}

async function openBehindProxy(
  serverPort: number,
  createDriver: CreateDriver,
  onTestFinished: OnTestFinished,
): Promise<ProxiedLocks> {
  let connectionCount = 0;
  const proxy = await tcpProxy({
    host: "127.0.0.1",
    get port() {
      connectionCount++;
      return serverPort;
    },
  });
  const prefix = randomUUID();
  const { port } = proxy.address as { readonly port: number };
  const locks = createLocks(createDriver(port, prefix, onTestFinished), { ttl: "3s", order: "strict" });
  const other = createLocks(redisFromUrl(`redis://127.0.0.1:${serverPort}?prefix=${prefix}`, OPTIONS), { ttl: "20s" });
  onTestFinished(async () => {
    await Promise.all([locks.close(), other.close()]);
    await proxy.close();
  });
  await locks.using("first", () => undefined);
  return { locks, other, proxy, connectionCount: () => connectionCount };
}

function blockEventLoop(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

withRedis((server) => {
  describe("a half-open command connection", () => {
    const cases = Object.entries(REPLACING);
    test.concurrent.for(cases)(
      "of %s is replaced",
      { timeout: 40_000 },
      async ([, createDriver], { onTestFinished }) => {
        const { locks, other, proxy, connectionCount } = await openBehindProxy(
          server().port,
          createDriver,
          onTestFinished,
        );
        const busy = await other.acquire("busy");
        const waiting = locks.acquire("busy");
        await until(async () => (await other.list("busy")).length === 2, { within: 5_000, what: "the waiter" });
        proxy.silence();
        await busy.release();
        await (await locks.acquire("new", { wait: REPLACED_MS })).release();
        await (await waiting).release();

        // an attempt to connect that nobody answers
        const countBefore = connectionCount();
        proxy.toClient.pause();
        const next = locks.acquire("next", { wait: "15s" });
        await until(() => connectionCount() > countBefore, { within: 5_000, what: "the attempt" });
        proxy.silence();
        proxy.toClient.resume();
        await (await next).release();
      },
    );

    test("is left once, however many calls time out together", async ({ onTestFinished }) => {
      const createDriver = REPLACING["a url"] as CreateDriver;
      const { locks, proxy } = await openBehindProxy(server().port, createDriver, onTestFinished);
      const warnings: string[] = [];
      const onWarning = ({ name }: Error): void => void warnings.push(name);
      process.on("warning", onWarning);
      onTestFinished(() => void process.off("warning", onWarning));
      proxy.silence();
      const calls: Promise<unknown>[] = [];
      for (let index = 0; index < 30; index++) {
        calls.push(locks.tryAcquire(`key${index}`).catch((error: unknown) => error));
        // the claims of one turn of the event loop are one command
        await new Promise((resolve) => setImmediate(resolve));
      }
      // all are due when the event loop goes on
      blockEventLoop(COMMAND_TIMEOUT_MS + 50);
      for (const result of await Promise.all(calls)) expect(result).toBeInstanceOf(StoreError);
      await locks.using("key", () => undefined);
      expect(warnings).toEqual([]);
    });

    test("is not what a process meets that had no time to read the answer", async () => {
      const fixture = createRedisFixture(server().port);
      const { driver } = await fixture.open(
        redisFromUrl(`redis://127.0.0.1:${server().port}?prefix=${fixture.prefix}`, OPTIONS),
      );
      await driver.list({ prefix: "" }, { max: 1 });
      const call = driver.list({ prefix: "" }, { max: 1 });
      blockEventLoop(2 * COMMAND_TIMEOUT_MS);
      expect(await call).toEqual({ items: [] });
      await fixture.close();
    });

    test("is not taken for one with a slow server", { timeout: 40_000 }, async ({ onTestFinished }) => {
      const { locks, proxy, connectionCount } = await openBehindProxy(
        server().port,
        REPLACING["a url"] as CreateDriver,
        onTestFinished,
      );
      const countBefore = connectionCount();
      let failureCount = 0;
      const call = (): Promise<unknown> => locks.list("first").catch(() => failureCount++);
      const calls = setInterval(() => void call(), COMMAND_TIMEOUT_MS / 20);
      onTestFinished(() => clearInterval(calls));
      // in small steps: answers go on to arrive
      for (const factor of [0.4, 0.7, 1, 1.3]) {
        proxy.toClient.delay(COMMAND_TIMEOUT_MS * factor);
        await call();
        await call();
      }
      await until(() => failureCount > 30, { within: 10_000, what: "calls that time out" });
      expect(connectionCount()).toBe(countBefore);
    });
  });

  const cases = Object.keys(CLIENTS).flatMap((library) =>
    Object.keys(CONNECTION_ENDS).map((end) => [library, end] as const),
  );
  describe("a half-open inbox connection", () => {
    test.concurrent.each(cases)(
      "by %s, %s, is noticed while a claim waits, and replaced",
      {
        timeout: 40_000,
      },
      async (library, end) => {
        const fixture: RedisFixture = createRedisFixture(server().port);
        await using proxy = await tcpProxy({ host: "127.0.0.1", port: server().port });
        const { port: proxyPort } = proxy.address as { port: number };
        const name = randomUUID();
        const createRedis = (): RedisClient =>
          (CLIENTS[library] as (typeof CLIENTS)[string])(server().port, proxyPort, name);
        try {
          const [lockClient, other] = [
            await fixture.open(redis(createRedis, { prefix: fixture.prefix })),
            await fixture.open(),
          ];
          const [first, second] = [makeClaim("key"), makeClaim("key")];
          await other.claimHeld(first);
          await lockClient.claim(second);
          proxy.toTarget.pause();
          proxy.toClient.pause();
          await (CONNECTION_ENDS[end] as (typeof CONNECTION_ENDS)[string])(fixture.admin, name);
          // only the regular renewals of the waiter
          const isTold = async (): Promise<boolean> => {
            expect((await lockClient.renewOnce(second)).state).toBe("waiting");
            return lockClient.pushes.some(({ id }) => id === null);
          };
          await until(isTold, { within: 20_000, what: "word that something may have been missed" });
          await other.driver.release(toReleases(first));
          const push = await until(() => lockClient.pushes.find(({ id }) => id === second.id), {
            within: 5_000,
            what: "the push",
          });
          expect(push.answer).toMatchObject({ state: "held" });
        } finally {
          await fixture.close();
        }
      },
    );
  });
});
