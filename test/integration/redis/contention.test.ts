/** Many waiters, a broken inbox, a changed master, full memory: under load no waiter is lost. */

import { Redis } from "ioredis";
import { afterEach, beforeEach, expect, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { RedisServer } from "../../support/stores/redis.ts";
import { startRedis } from "../../support/stores/redis.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture } from "../../support/stores/redis-fixture.ts";
import { until } from "../../support/until.ts";

const long = process.env.HOLDFAST_LONG === "1";
const WAITER_COUNT = long ? 10_000 : 1_500;

interface CriticalSection {
  readonly who: number;
  readonly token: bigint;
}

withRedis((server) => {
  let scene: RedisFixture;
  let clients: Locks[];
  beforeEach(() => {
    scene = createRedisFixture(server().port);
    clients = [];
  });
  afterEach(async () => {
    for (const locks of clients) await locks.close();
    await scene.close();
  });

  const client = (port: number, ttl = 60_000): Locks => {
    const driver = redis(() => new Redis({ port, host: "127.0.0.1", retryStrategy: () => 20 }), {
      prefix: scene.prefix,
      warn: () => undefined,
    });
    const locks = createLocks(driver, { ttl, handoffs: 1 });
    clients.push(locks);
    return locks;
  };

  /** One section after another: no two overlap, tokens rise. */
  const watch = (): { readonly sections: CriticalSection[]; enter(who: number, of: Locks): Promise<void> } => {
    const sections: CriticalSection[] = [];
    let inside = 0;
    return {
      sections,
      async enter(who, of) {
        const lock = await of.acquire("key");
        inside++;
        expect(inside).toBe(1);
        expect(lock.token).toBeGreaterThan(sections.at(-1)?.token ?? 0n);
        sections.push({ who, token: lock.token });
        await Promise.resolve();
        inside--;
        await lock.release();
      },
    };
  };

  test(`${WAITER_COUNT} waiters on one key are served in order, at one command a hand-off`, {
    timeout: long ? 300_000 : 40_000,
  }, async () => {
    const [one, other] = [client(server().port), client(server().port)];
    const { sections, enter } = watch();
    const first = await one.acquire("key");
    const all = Array.from({ length: WAITER_COUNT }, (_, at) => enter(at, at % 2 === 0 ? one : other));
    await until(
      async () =>
        (await scene.admin.zcard((await scene.admin.keys(`${scene.prefix}:1:*:w:key`))[0] ?? "")) === WAITER_COUNT,
      {
        within: 30_000,
        what: "the line",
      },
    );
    await scene.admin.config("RESETSTAT");
    await first.release();
    await Promise.all(all);
    const stats = await scene.admin.info("commandstats");
    const calls = Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1]);
    // each is granted by its predecessor's release; the rest are renewals, many in one call
    expect(calls).toBeLessThan(WAITER_COUNT * 1.1 + 50);
    for (const parity of [0, 1]) {
      const own = sections.map(({ who }) => who).filter((who) => who % 2 === parity);
      expect(own).toEqual([...own].sort((a, b) => a - b));
    }
    expect(sections.length).toBe(WAITER_COUNT);
  });

  test("inboxes cut repeatedly under load lose no waiter, and cost each at most one turn or recheck", {
    timeout: 40_000,
  }, async () => {
    const all = [client(server().port, 4_000), client(server().port, 4_000), client(server().port, 4_000)];
    const { sections, enter } = watch();
    let isOver = false;
    const longest: number[] = [];
    const work = all.map(async (of, who) => {
      while (!isOver) {
        const began = performance.now();
        await enter(who, of);
        longest[who] = Math.max(longest[who] ?? 0, performance.now() - began);
      }
    });
    for (let cut = 0; cut < 15; cut++) {
      const size = sections.length;
      await scene.admin.call("CLIENT", "KILL", "TYPE", "pubsub");
      await until(() => sections.length >= size + 12, { within: 10_000, what: "work after the cut" });
    }
    isOver = true;
    await Promise.all(work);
    for (const who of [0, 1, 2])
      expect(sections.filter((criticalSection) => criticalSection.who === who).length).toBeGreaterThan(15);
    // an unreachable waiter loses a turn; a lost push costs at most a lease, until the recheck
    expect(Math.max(...longest)).toBeLessThan(4_000);
  });

  test("a full server refuses new locks and still serves the holder and the queue", { timeout: 20_000 }, async () => {
    const [one, other] = [client(server().port), client(server().port)];
    const lock = await one.acquire("key");
    const next = other.acquire("key");
    await until(async () => (await one.list("key")).length === 2, { within: 5_000, what: "the waiter" });
    await scene.admin.config("SET", "maxmemory", "1");
    try {
      await expect(one.tryAcquire("new")).rejects.toMatchObject({ cause: { message: expect.stringContaining("OOM") } });
      expect((await scene.keys()).filter((key) => key.includes(":new"))).toEqual([]);
      expect(await lock.release()).toBe(true);
      expect(await (await next).release()).toBe(true);
    } finally {
      await scene.admin.config("SET", "maxmemory", "0");
    }
    await (await one.acquire("new")).release();
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
      const made: Redis[] = [];
      const driver = (): ReturnType<typeof redis> => {
        const client = new Redis({ port, host: "127.0.0.1", retryStrategy: () => 20 });
        const connect = client.connect.bind(client);
        client.connect = (...words) => {
          client.options.port = port;
          return connect(...words);
        };
        const duplicate = client.duplicate.bind(client);
        client.duplicate = (more) => {
          const ears = duplicate({ ...more, port });
          const dial = ears.connect.bind(ears);
          ears.connect = (...words) => {
            ears.options.port = port;
            return dial(...words);
          };
          made.push(ears);
          return ears;
        };
        made.push(client);
        return redis(() => client, { prefix: "switch", warn: () => undefined, commandTimeoutMs: 1_000 });
      };
      for (let at = 0; at < 3; at++) clients.push(createLocks(driver(), { ttl: 3_000, handoffs: 1 }));
      let [inside, isOver, last] = [0, false, 0n];
      const turns = [0, 0, 0];
      const work = clients.map(async (of, who) => {
        while (!isOver) {
          const lock = await of.acquire("key");
          inside++;
          if (!lock.signal.aborted) expect(inside).toBe(1);
          expect(lock.token).toBeGreaterThan(last);
          last = lock.token;
          turns[who] = (turns[who] as number) + 1;
          inside--;
          await lock.release();
        }
      });
      for (const one of work) one.catch(() => undefined); // failures are reported at the end
      const total = (): number => turns.reduce((sum, one) => sum + one, 0);
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
      for (const redis of made) redis.disconnect(true);
      const before = [...turns];
      await until(() => turns.every((count, who) => count > (before[who] as number) + 10), {
        within: 30_000,
        what: "turns of everybody on the new master",
      });
      isOver = true;
      await Promise.all(work);
    } finally {
      for (const locks of clients) await locks.close();
      first.disconnect();
      second.disconnect();
      await replica.stop();
    }
  });
});
