import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import type { TestAPI } from "vitest";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Locks } from "../../src/client/locks.ts";
import { createLocks } from "../../src/client/locks.ts";
import type { LocksOptions } from "../../src/client/options.ts";
import { conformance } from "../../src/conformance/suite.ts";
import type { QuorumOptions } from "../../src/drivers/quorum/driver.ts";
import { quorum } from "../../src/drivers/quorum/driver.ts";
import { redis } from "../../src/drivers/redis/driver.ts";
import { bucketOf } from "../../src/drivers/redis/words.ts";
import type { Driver } from "../../src/spi/driver.ts";
import type { RedisServer } from "../support/services/redis.ts";
import { startRedis, whyNoRedis } from "../support/services/redis.ts";
import type { TcpProxy } from "../support/tcp-proxy.ts";
import { tcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/wait-for.ts";
import { watched } from "../support/watched-test.ts";

const long = process.env.HOLDFAST_LONG === "1";
/** An eighth of it, in which a member has to answer, is more than a busy machine takes. */
const TTL_MS = 8_000;
/** For leases whose end is waited for. */
const SHORT_TTL_MS = 3_000;
/** How long a member is waited for that says nothing, and how late a slow one is. */
const LATE_MS = 3_000;
/** Who waited for such a member would take longer. */
const PROMPT_MS = LATE_MS * 0.6;

const servers: RedisServer[] = [];
const proxies: TcpProxy[] = [];
let prefix = "";
let open: Locks[] = [];

function member(index: number): Driver {
  const { port } = (proxies[index] as TcpProxy).address as { port: number };
  return redis(() => new Redis({ port, host: "127.0.0.1", retryStrategy: () => 50 }), {
    prefix,
    commandTimeoutMs: 5_000,
  });
}

function drivers(options: QuorumOptions = {}): Driver {
  return quorum([member(0), member(1), member(2)], { callTimeoutMs: 1_000, ...options });
}

function client(options: LocksOptions = {}, more: QuorumOptions = {}): Locks {
  const locks = createLocks(drivers(more), { ttl: TTL_MS, ...options });
  open.push(locks);
  return locks;
}

/** Nobody reaches the member: what it is asked fails at once. */
function down(index: number): void {
  proxies[index]?.refuse(true);
  proxies[index]?.cut();
}

function blackHole(index: number): void {
  proxies[index]?.up.pause();
  proxies[index]?.down.pause();
}

function heal(index: number): void {
  const proxy = proxies[index];
  proxy?.refuse(false);
  proxy?.up.delay(0);
  proxy?.up.resume();
  proxy?.down.resume();
}

const whole = { within: 10_000 };

/** How many of the members keep a claim of this key. */
async function keepers(key: string): Promise<number> {
  let sum = 0;
  for (const { port } of servers) {
    const one = redis(() => new Redis(port, "127.0.0.1"), { prefix });
    await one.open(() => undefined);
    if ((await one.list({ prefix: key }, 10)).some(({ holds }) => holds[0].key === key)) sum++;
    await one.close();
  }
  return sum;
}

const reason = whyNoRedis();
describe.skipIf(reason !== null && process.env.CI !== "true")("a majority of three Redis servers", () => {
  beforeAll(async () => {
    for (let index = 0; index < 3; index++) {
      const server = await startRedis();
      servers.push(server);
      proxies.push(await tcpProxy({ host: "127.0.0.1", port: server.port }));
    }
  }, 180_000);
  afterAll(async () => {
    for (const proxy of proxies) await proxy.close();
    for (const server of servers) await server.stop();
  });
  beforeEach(() => {
    prefix = randomUUID();
  });
  afterEach(async () => {
    for (const index of proxies.keys()) heal(index);
    await Promise.all(open.map((locks) => locks.close()));
    open = [];
  }, 30_000);

  for (const [what, trouble] of [
    ["down", down],
    ["black-holed", blackHole],
    ["slow", (index: number) => proxies[index]?.up.delay(LATE_MS)],
  ] as const) {
    test(`with a minority ${what} locks are granted without waiting for it, exclude each other, and tokens rise`, async () => {
      const patient = [{ handoffs: 1, ttl: 8 * LATE_MS }, { callTimeoutMs: LATE_MS }] as const;
      const [one, other] = [client(...patient), client(...patient)];
      await (await one.acquire("key")).release();
      await (await other.acquire("key")).release();
      trouble(2);
      let last = 0n;
      const tookMs: number[] = [];
      for (let round = 0; round < 12; round++) {
        const from = performance.now();
        const lock = await (round % 2 === 0 ? one : other).acquire("key", { wait: "20s" });
        if (round > 1) tookMs.push(performance.now() - from);
        expect(await (round % 2 === 0 ? other : one).tryAcquire("key")).toBeNull();
        expect(lock.token).toBeGreaterThan(last);
        last = lock.token;
        expect(await lock.release()).toBe(true);
      }
      // the machine may have stood still in one of them
      expect(tookMs.filter((ms) => ms >= PROMPT_MS).length).toBeLessThanOrEqual(1);
    }, 60_000);
  }

  test("a member restarted empty lets nobody in while the others stand, and gets its vote again", async () => {
    const [holder, other] = [client({ ttl: SHORT_TTL_MS }), client()];
    const lock = await holder.acquire("key");
    await until(async () => (await keepers("key")) === 3, { ...whole, what: "three votes" });
    await servers[2]?.restart();
    expect(await other.tryAcquire("key")).toBeNull();
    await until(async () => (await keepers("key")) === 3, { ...whole, what: "the vote of the one that forgot" });
    expect(await other.tryAcquire("key")).toBeNull();
    // its vote counts: the lock outlives another member
    down(0);
    const end = performance.now() + 1.5 * SHORT_TTL_MS;
    await until(() => performance.now() > end, { ...whole, what: "a lease and a half" });
    lock.throwIfLost();
    expect(await other.tryAcquire("key")).toBeNull();
    expect(await lock.release()).toBe(true);
  }, 30_000);

  test("while a majority is away busy is not said, the holder is told by its own clock, and all goes on afterwards", async () => {
    const told: string[] = [];
    const onMember = (index: number, error: unknown): void =>
      void told.push(`${index} ${error === null ? "back" : "away"}`);
    const [holder, other] = [client({ ttl: SHORT_TTL_MS }, { onMember }), client()];
    const lock = await holder.acquire("key");
    await (await other.acquire("another")).release();
    down(1);
    down(2);
    // what may be left of it by a renewal that was answered before
    const end = performance.now() + SHORT_TTL_MS;
    const early = performance.now() + lock.remainingMs;
    await expect(other.tryAcquire("free")).rejects.toMatchObject({ code: "DRIVER_FAILED" });
    const waits = other.acquire("key", { wait: "20s" });
    await until(() => lock.signal.aborted, { ...whole, what: "the loss" });
    expect(performance.now()).toBeGreaterThan(early - 5);
    expect(performance.now()).toBeLessThan(end + 2_000);
    expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST" });
    heal(1);
    heal(2);
    const next = await waits;
    expect(next.token).toBeGreaterThan(lock.token);
    await lock.release();
    await next.release();
    expect(told).toContain("1 away");
    await until(() => told.includes("1 back") && told.includes("2 back"), { ...whole, what: "word of their return" });
  }, 30_000);

  test("contenders that each have one vote resolve the tie, also with a member away", async () => {
    const clients = [
      client({ handoffs: 1 }),
      client({ handoffs: 1 }),
      client({ handoffs: 1 }),
      client({ handoffs: 1 }),
    ];
    for (const locks of clients) await (await locks.acquire("warm")).release();
    let inside = 0;
    for (const without of [null, 1]) {
      if (without !== null) down(without);
      const from = performance.now();
      await Promise.all(
        clients.map(async (locks) => {
          for (let round = 0; round < 6; round++) {
            await locks.using("key", { wait: "10s" }, async () => {
              expect(++inside).toBe(1);
              await Promise.resolve();
              inside--;
            });
          }
        }),
      );
      expect(performance.now() - from).toBeLessThan(10_000);
    }
    expect(inside).toBe(0);
  }, 60_000);

  test("tokens stay near the clock, also where a key shares its counter with its own ticket", async () => {
    const names = Array.from({ length: 5_000 }, (_, index) => `key ${index}`);
    const key = names.find((name) => bucketOf(name) === bucketOf(`${name}#holdfast-token`)) ?? "";
    expect(key).not.toBe("");
    const locks = client();
    let last = 0n;
    for (let round = 0; round < 40; round++) {
      const lock = await locks.acquire(key);
      last = lock.token;
      await lock.release();
    }
    expect(Number(last) / 1_000 - Date.now()).toBeLessThan(5_000);
  });

  test("what a black-holed member was not told of is released there when it answers again", async () => {
    const locks = client({ ttl: 60_000 });
    const lock = await locks.acquire("key");
    await until(async () => (await keepers("key")) === 3, { ...whole, what: "three votes" });
    blackHole(2);
    expect(await lock.release()).toBe(true);
    expect(await keepers("key")).toBe(1);
    heal(2);
    await until(
      async () => {
        await (await locks.acquire("other")).release();
        return (await keepers("key")) === 0;
      },
      { ...whole, what: "the release of the third" },
    );
  }, 30_000);

  // an hour of leases in real time is for the long run; three memories do all of it in the short one
  if (long) {
    conformance({ describe, test: watched(test as TestAPI) }, "three Redis servers", {
      open: async () => {
        const own = randomUUID();
        return {
          driver: () => quorum(servers.map(({ port }) => redis(() => new Redis(port, "127.0.0.1"), { prefix: own }))),
        };
      },
      traits: { manyKeys: false, permits: "shared", fifo: false },
      verbs: ["detach"],
      keys: 5_000,
      random: { seeds: 20, steps: 100 },
    });
  }
});
