import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import type { TestAPI } from "vitest";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import type { LocksOptions } from "../../../src/client/options.ts";
import type { QuorumOptions } from "../../../src/drivers/quorum/driver.ts";
import { quorum } from "../../../src/drivers/quorum/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { toBucket } from "../../../src/drivers/redis/key-names.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import type { TcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { testDriver } from "../../client/suite.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { leakCheckedTest } from "../../support/leak-checked-test.ts";
import type { RedisServer } from "../../support/stores/redis.ts";
import { redisUnavailableReason, startRedis } from "../../support/stores/redis.ts";

const long = process.env.HOLDFAST_LONG === "1";
/** An eighth of it, in which a member has to answer, is more than a busy machine takes. */
const TTL_MS = 8_000;
/** For leases that the test lets expire. */
const SHORT_TTL_MS = 3_000;
/** How long the driver waits for a silent member, and the delay of a slow one. */
const LATE_MS = 3_000;
/** Waiting for such a member would take longer. */
const PROMPT_MS = LATE_MS * 0.6;

const servers: RedisServer[] = [];
const proxies: TcpProxy[] = [];
let prefix = "";
let open: Locks[] = [];

function memberDriver(index: number): Driver {
  const { port } = (proxies[index] as TcpProxy).address as { port: number };
  return redis(() => new Redis({ port, host: "127.0.0.1", retryStrategy: () => 50 }), {
    prefix,
    commandTimeoutMs: 5_000,
  });
}

function memberDrivers(options: QuorumOptions = {}): Driver {
  return quorum([memberDriver(0), memberDriver(1), memberDriver(2)], { callTimeoutMs: 1_000, ...options });
}

function openClient(options: LocksOptions = {}, quorumOptions: QuorumOptions = {}): Locks {
  const locks = createLocks(memberDrivers(quorumOptions), { ttl: TTL_MS, ...options });
  open.push(locks);
  return locks;
}

/** The member is unreachable: calls to it fail at once. */
function takeDown(index: number): void {
  proxies[index]?.refuseConnections(true);
  proxies[index]?.disconnect();
}

function dropTraffic(index: number): void {
  proxies[index]?.toTarget.pause();
  proxies[index]?.toClient.pause();
}

function heal(index: number): void {
  const proxy = proxies[index];
  proxy?.refuseConnections(false);
  proxy?.toTarget.delay(0);
  proxy?.toTarget.resume();
  proxy?.toClient.resume();
}

const ALL_MEMBERS_BOUND = { within: 10_000 };

/** The number of members with a claim on this key. */
async function countKeepers(key: string): Promise<number> {
  let sum = 0;
  for (const { port } of servers) {
    const driver = redis(() => new Redis(port, "127.0.0.1"), { prefix });
    await driver.open(NO_EVENTS);
    if ((await driver.list({ prefix: key }, { max: 10 })).items.some(({ locks }) => locks[0].key === key)) sum++;
    await driver.close();
  }
  return sum;
}

const unavailableReason = redisUnavailableReason();
describe.skipIf(unavailableReason !== null && process.env.CI !== "true")("a majority of three Redis servers", () => {
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

  for (const [what, fault] of [
    ["down", takeDown],
    ["black-holed", dropTraffic],
    ["slow", (index: number) => proxies[index]?.toTarget.delay(LATE_MS)],
  ] as const) {
    test(`with a minority ${what} locks are granted without waiting for it, exclude each other, and tokens rise`, async () => {
      const patient = [{ order: "strict", ttl: 8 * LATE_MS }, { callTimeoutMs: LATE_MS }] as const;
      const [client, other] = [openClient(...patient), openClient(...patient)];
      await (await client.acquire("key")).release();
      await (await other.acquire("key")).release();
      fault(2);
      let last = 0n;
      const tookMs: number[] = [];
      for (let round = 0; round < 12; round++) {
        const from = performance.now();
        const lock = await (round % 2 === 0 ? client : other).acquire("key", { wait: "20s" });
        if (round > 1) tookMs.push(performance.now() - from);
        expect(await (round % 2 === 0 ? other : client).tryAcquire("key")).toBeNull();
        expect(lock.token).toBeGreaterThan(last);
        last = lock.token;
        expect(await lock.release()).toBe(true);
      }
      // the machine may have stood still in one of them
      expect(tookMs.filter((ms) => ms >= PROMPT_MS).length).toBeLessThanOrEqual(1);
    }, 60_000);
  }

  test("a member restarted empty grants no second lock while the others are up, and gets its vote again", async () => {
    const [holder, other] = [openClient({ ttl: SHORT_TTL_MS }), openClient()];
    const lock = await holder.acquire("key");
    await until(async () => (await countKeepers("key")) === 3, { ...ALL_MEMBERS_BOUND, what: "three votes" });
    await servers[2]?.restart();
    expect(await other.tryAcquire("key")).toBeNull();
    await until(async () => (await countKeepers("key")) === 3, {
      ...ALL_MEMBERS_BOUND,
      what: "the vote of the one that forgot",
    });
    expect(await other.tryAcquire("key")).toBeNull();
    // its vote counts: the lock outlives the loss of another member
    takeDown(0);
    const end = performance.now() + 1.5 * SHORT_TTL_MS;
    await until(() => performance.now() > end, { ...ALL_MEMBERS_BOUND, what: "a lease and a half" });
    lock.throwIfLost();
    expect(await other.tryAcquire("key")).toBeNull();
    expect(await lock.release()).toBe(true);
  }, 30_000);

  test("while a majority is missing no claim is busy, the holder's lease ends by its own clock, and afterwards locks work again", async () => {
    const events: string[] = [];
    const onMember = (index: number, error: unknown): void =>
      void events.push(`${index} ${error === null ? "back" : "away"}`);
    const [holder, other] = [openClient({ ttl: SHORT_TTL_MS }, { onMember }), openClient()];
    const lock = await holder.acquire("key");
    await (await other.acquire("another")).release();
    takeDown(1);
    takeDown(2);
    // the rest of the lease since an earlier renewal
    const end = performance.now() + SHORT_TTL_MS;
    const expiresAt = performance.now() + lock.remainingMs;
    await expect(other.tryAcquire("free")).rejects.toMatchObject({ code: "LOCK_STORE_FAILED" });
    const waits = other.acquire("key", { wait: "20s" });
    await until(() => lock.signal.aborted, { ...ALL_MEMBERS_BOUND, what: "the loss" });
    expect(performance.now()).toBeGreaterThan(expiresAt - 5);
    expect(performance.now()).toBeLessThan(end + 2_000);
    expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST" });
    heal(1);
    heal(2);
    const next = await waits;
    expect(next.token).toBeGreaterThan(lock.token);
    await lock.release();
    await next.release();
    expect(events).toContain("1 away");
    await until(() => events.includes("1 back") && events.includes("2 back"), {
      ...ALL_MEMBERS_BOUND,
      what: "word of their return",
    });
  }, 30_000);

  test("contenders with one vote each resolve the tie, also with a member missing", async () => {
    const clients = [
      openClient({ order: "strict" }),
      openClient({ order: "strict" }),
      openClient({ order: "strict" }),
      openClient({ order: "strict" }),
    ];
    for (const locks of clients) await (await locks.acquire("warm")).release();
    let insideCount = 0;
    for (const missingMember of [null, 1]) {
      if (missingMember !== null) takeDown(missingMember);
      const from = performance.now();
      await Promise.all(
        clients.map(async (locks) => {
          for (let round = 0; round < 6; round++) {
            await locks.using("key", { wait: "10s" }, async () => {
              expect(++insideCount).toBe(1);
              await Promise.resolve();
              insideCount--;
            });
          }
        }),
      );
      expect(performance.now() - from).toBeLessThan(10_000);
    }
    expect(insideCount).toBe(0);
  }, 60_000);

  test("tokens stay near the clock, also where a key shares its counter with its own ticket", async () => {
    const names = Array.from({ length: 5_000 }, (_, index) => `key ${index}`);
    const key = names.find((name) => toBucket(name) === toBucket(`${name}#holdfast-token`)) ?? "";
    expect(key).not.toBe("");
    const locks = openClient();
    let last = 0n;
    for (let round = 0; round < 40; round++) {
      const lock = await locks.acquire(key);
      last = lock.token;
      await lock.release();
    }
    expect(Number(last) / 1_000 - Date.now()).toBeLessThan(5_000);
  });

  test("a release that a black-holed member missed is repeated when it answers again", async () => {
    const locks = openClient({ ttl: 60_000 });
    const lock = await locks.acquire("key");
    await until(async () => (await countKeepers("key")) === 3, { ...ALL_MEMBERS_BOUND, what: "three votes" });
    dropTraffic(2);
    expect(await lock.release()).toBe(true);
    expect(await countKeepers("key")).toBe(1);
    heal(2);
    await until(
      async () => {
        await (await locks.acquire("other")).release();
        return (await countKeepers("key")) === 0;
      },
      { ...ALL_MEMBERS_BOUND, what: "the release of the third" },
    );
  }, 30_000);

  // an hour of leases in real time is for the long run; three memories do all of it in the short one
  if (long) {
    testDriver({ describe, test: leakCheckedTest(test as TestAPI) }, "three Redis servers", {
      open: async () => {
        const own = randomUUID();
        return {
          driver: () => quorum(servers.map(({ port }) => redis(() => new Redis(port, "127.0.0.1"), { prefix: own }))),
        };
      },
      traits: { manyKeys: false, permits: "shared", fifo: false, recall: "push" },
      verbs: ["detach"],
      keys: 5_000,
      random: { seeds: 20, steps: 100 },
    });
  }
});
