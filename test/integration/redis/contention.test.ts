/** Many waiters, a broken inbox, a changed master, full memory: under load no waiter is lost. */

import { Redis } from "ioredis";
import { afterEach, beforeEach, expect, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import type { RedisServer } from "../../support/stores/redis.ts";
import { startRedis } from "../../support/stores/redis.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture } from "../../support/stores/redis-fixture.ts";

const long = process.env.HOLDFAST_LONG === "1";
const WAITER_COUNT = long ? 10_000 : 1_500;

interface CriticalSection {
  readonly caller: number;
  readonly token: bigint;
}

withRedis((server) => {
  let fixture: RedisFixture;
  let clients: Locks[];
  beforeEach(() => {
    fixture = createRedisFixture(server().port);
    clients = [];
  });
  afterEach(async () => {
    for (const locks of clients) await locks.close();
    await fixture.close();
  });

  const client = (port: number, ttl = 60_000): Locks => {
    const driver = redis(() => new Redis({ port, host: "127.0.0.1", retryStrategy: () => 20 }), {
      prefix: fixture.prefix,
      warn: () => undefined,
    });
    const locks = createLocks(driver, { ttl, order: "strict" });
    clients.push(locks);
    return locks;
  };

  /** One section after another: no two overlap, tokens rise. */
  const watch = (): {
    readonly sections: CriticalSection[];
    enter(caller: number, clientLocks: Locks): Promise<void>;
  } => {
    const sections: CriticalSection[] = [];
    let insideCount = 0;
    return {
      sections,
      async enter(caller, clientLocks) {
        const lock = await clientLocks.acquire("key");
        insideCount++;
        expect(insideCount).toBe(1);
        expect(lock.token).toBeGreaterThan(sections.at(-1)?.token ?? 0n);
        sections.push({ caller, token: lock.token });
        await Promise.resolve();
        insideCount--;
        await lock.release();
      },
    };
  };

  test(`${WAITER_COUNT} waiters on one key are served in order, at one command a hand-off`, {
    timeout: long ? 300_000 : 40_000,
  }, async () => {
    const [firstClient, other] = [client(server().port), client(server().port)];
    const { sections, enter } = watch();
    const first = await firstClient.acquire("key");
    const entries = Array.from({ length: WAITER_COUNT }, (_, index) =>
      enter(index, index % 2 === 0 ? firstClient : other),
    );
    await until(
      async () =>
        (await fixture.admin.zcard((await fixture.admin.keys(`${fixture.prefix}:3:*:w:key`))[0] ?? "")) ===
        WAITER_COUNT,
      {
        within: 30_000,
        what: "the line",
      },
    );
    await fixture.admin.config("RESETSTAT");
    await first.release();
    await Promise.all(entries);
    const stats = await fixture.admin.info("commandstats");
    const calls = Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1]);
    // each is granted by its predecessor's release; the rest are renewals, many in one call
    expect(calls).toBeLessThan(WAITER_COUNT * 1.1 + 50);
    for (const parity of [0, 1]) {
      const ownTurns = sections.map(({ caller }) => caller).filter((who) => who % 2 === parity);
      expect(ownTurns).toEqual([...ownTurns].sort((a, b) => a - b));
    }
    expect(sections.length).toBe(WAITER_COUNT);
  });

  test("inboxes cut repeatedly under load lose no waiter, and cost each at most one turn or recheck", {
    timeout: 40_000,
  }, async () => {
    const contenders = [client(server().port, 4_000), client(server().port, 4_000), client(server().port, 4_000)];
    const { sections, enter } = watch();
    let isOver = false;
    const longest: number[] = [];
    const loops = contenders.map(async (clientLocks, caller) => {
      while (!isOver) {
        const startedAt = performance.now();
        await enter(caller, clientLocks);
        longest[caller] = Math.max(longest[caller] ?? 0, performance.now() - startedAt);
      }
    });
    for (let round = 0; round < 15; round++) {
      const size = sections.length;
      await fixture.admin.call("CLIENT", "KILL", "TYPE", "pubsub");
      await until(() => sections.length >= size + 12, { within: 10_000, what: "work after the cut" });
    }
    isOver = true;
    await Promise.all(loops);
    for (const caller of [0, 1, 2])
      expect(sections.filter((criticalSection) => criticalSection.caller === caller).length).toBeGreaterThan(15);
    // an unreachable waiter loses a turn; a lost push costs at most a lease, until the recheck
    expect(Math.max(...longest)).toBeLessThan(4_000);
  });

  test("a full server refuses new locks and still serves the holder and the queue", { timeout: 20_000 }, async () => {
    const [firstClient, other] = [client(server().port), client(server().port)];
    const lock = await firstClient.acquire("key");
    const next = other.acquire("key");
    await until(async () => (await firstClient.list("key")).length === 2, { within: 5_000, what: "the waiter" });
    await fixture.admin.config("SET", "maxmemory", "1");
    try {
      await expect(firstClient.tryAcquire("new")).rejects.toMatchObject({
        cause: { message: expect.stringContaining("OOM") },
      });
      expect((await fixture.keys()).filter((key) => key.includes(":new"))).toEqual([]);
      expect(await lock.release()).toBe(true);
      expect(await (await next).release()).toBe(true);
    } finally {
      await fixture.admin.config("SET", "maxmemory", "0");
    }
    await (await firstClient.acquire("new")).release();
  });
});

withRedis((server) => {
  test("masters that switch roles under load lose no waiter: no two holders overlap, tokens rise, all are served", {
    timeout: 60_000,
  }, async () => {
    const replica: RedisServer = await startRedis(["--replicaof", "127.0.0.1", String(server().port)]);
    const [first, second] = [new Redis(server().port, "127.0.0.1"), new Redis(replica.port, "127.0.0.1")];
    const clients: Locks[] = [];
    try {
      await until(async () => /master_link_status:up/.test(await second.info("replication")), {
        within: 20_000,
        what: "the replica",
      });
      // a client that is informed of the new master, as one with Sentinels is
      let port = server().port;
      const redisClients: Redis[] = [];
      const driver = (): ReturnType<typeof redis> => {
        const client = new Redis({ port, host: "127.0.0.1", retryStrategy: () => 20 });
        const connect = client.connect.bind(client);
        client.connect = (...args) => {
          client.options.port = port;
          return connect(...args);
        };
        const duplicate = client.duplicate.bind(client);
        client.duplicate = (options) => {
          const subscriber = duplicate({ ...options, port });
          const dial = subscriber.connect.bind(subscriber);
          subscriber.connect = (...args) => {
            subscriber.options.port = port;
            return dial(...args);
          };
          redisClients.push(subscriber);
          return subscriber;
        };
        redisClients.push(client);
        return redis(() => client, { prefix: "switch", warn: () => undefined, commandTimeoutMs: 1_000 });
      };
      for (let index = 0; index < 3; index++) clients.push(createLocks(driver(), { ttl: 3_000, order: "strict" }));
      let [insideCount, isOver, last] = [0, false, 0n];
      const turns = [0, 0, 0];
      const loops = clients.map(async (client, caller) => {
        while (!isOver) {
          const lock = await client.acquire("key");
          insideCount++;
          if (!lock.signal.aborted) expect(insideCount).toBe(1);
          expect(lock.token).toBeGreaterThan(last);
          last = lock.token;
          turns[caller] = (turns[caller] as number) + 1;
          insideCount--;
          await lock.release();
        }
      });
      for (const loop of loops) loop.catch(() => undefined); // failures are reported at the end
      const total = (): number => turns.reduce((sum, count) => sum + count, 0);
      await until(() => total() > 50, { within: 10_000, what: "work" });
      await until(async () => /slave0:.*state=online/.test(await first.info("replication")), {
        within: 10_000,
        what: "the replica",
      });
      // as `FAILOVER TO`: no write while the replica catches up, then the roles change
      await first.call("FAILOVER", "TO", "127.0.0.1", String(replica.port), "TIMEOUT", "5000", "FORCE");
      await until(async () => /role:master/.test(await second.info("replication")), {
        within: 10_000,
        what: "the switch",
      });
      port = replica.port;
      for (const redis of redisClients) redis.disconnect(true);
      const before = [...turns];
      await until(() => turns.every((count, caller) => count > (before[caller] as number) + 10), {
        within: 30_000,
        what: "turns of everybody on the new master",
      });
      isOver = true;
      await Promise.all(loops);
    } finally {
      for (const locks of clients) await locks.close();
      first.disconnect();
      second.disconnect();
      await replica.stop();
    }
  });
});
