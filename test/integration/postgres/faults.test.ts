// Connections and servers that end in the middle of calls, and sessions that keep rows locked.

import { Client } from "pg";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Locks } from "../../../src/index.ts";
import { startPgBouncer } from "../../support/stores/pgbouncer.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { makeClaim } from "../../support/stores/redis-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";
import { until } from "../../support/until.ts";

const BUCKETS = "holdfast.holdfast_1_buckets";

withPostgres((server) => {
  let fixture: PostgresFixture;
  beforeEach(async () => {
    fixture = await createPostgresFixture(server());
  });
  afterEach(() => fixture.close());

  /** Callers of 4 clients take turns on 4 keys until `stop` is called; resolves to the number of turns. */
  const startLoad = async (settings: { readonly url?: string } = {}) => {
    const clients: Locks[] = Array.from({ length: 4 }, () => fixture.locks({ ttl: "30s", handoffs: 1 }, settings));
    // the faults are those of calls: open() reports a connection that ends while it reads the settings
    for (const locks of clients) await locks.list("");
    const inside = new Map<string, bigint>();
    const lastTokens = new Map<string, bigint>();
    const faults: string[] = [];
    let turns = 0;
    let isOn = true;
    const callers = Array.from({ length: 16 }, async (_, index) => {
      while (isOn) {
        const key = `key ${index % 4}`;
        const lock = await (clients[(index >> 2) % 4] as Locks).acquire(key, { wait: "60s" });
        if (inside.has(key)) faults.push(`${key} is held twice`);
        if (lock.token <= (lastTokens.get(key) ?? 0n)) faults.push(`the token of ${key} did not rise`);
        inside.set(key, lock.token);
        lastTokens.set(key, lock.token);
        turns++;
        await Promise.resolve();
        inside.delete(key);
        await lock.release().catch(() => undefined); // unknown; the client repeats it
      }
    });
    return {
      turns: () => turns,
      faults,
      async stop() {
        isOn = false;
        await Promise.all(callers);
      },
    };
  };

  const survives = async (
    load: Awaited<ReturnType<typeof startLoad>>,
    harm: () => Promise<unknown>,
    rounds: number,
  ) => {
    for (let round = 0; round < rounds; round++) {
      const before = load.turns();
      await until(() => load.turns() > before + 10, { within: 30_000, what: "ten turns" });
      await harm();
    }
    const before = load.turns();
    await until(() => load.turns() > before + 10, { within: 30_000, what: "ten turns after the last fault" });
    await load.stop();
    expect(load.faults).toEqual([]);
    expect(await fixture.inspect()).toEqual([]);
  };

  test("connections killed in the middle of calls: no key is held twice, and everyone goes on", async () => {
    const kill = `select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid()`;
    await survives(await startLoad(), () => fixture.database.query(kill), 10);
  });

  test("a server that is restarted, or crashes, under load", async () => {
    let count = 0;
    const harm = async (): Promise<void> => {
      if (count++ % 2 === 0) return server().restart();
      await server().crash();
      // its processes may still hold the lock file
      await until(
        () =>
          server()
            .start()
            .then(
              () => true,
              () => false,
            ),
        { within: 20_000, what: "the start after the crash" },
      );
    };
    await survives(await startLoad(), harm, 4);
  });

  test("a pooler in transaction mode that swaps its connections while it restarts serves rows; pushes are missed and reported", async () => {
    const pooler = await startPgBouncer(server().port, { poolSize: 4 });
    const load = await startLoad({ url: pooler.urlOf(fixture.database.name) });
    let count = 0;
    const harm = async (): Promise<void> => {
      if (count++ % 2 === 0) {
        await pooler.stop();
        return pooler.start();
      }
      const console = new Client(pooler.consoleUrl);
      await console.connect();
      await console.query("reconnect");
      await console.end();
    };
    await survives(load, harm, 4);
    await until(() => fixture.warnings.some((warning) => warning.includes("notifications do not arrive")), {
      within: 10_000,
      what: "the warning",
    });
    await fixture.closeDrivers();
    await pooler.dispose();
  });

  test("a session that keeps the bucket rows locked delays calls, each at most until its timeout, and changes nothing", async () => {
    const { driver } = await fixture.open({ commandTimeoutMs: 700 });
    const locker = new Client(fixture.database.url);
    await locker.connect();
    await locker.query("begin");
    await locker.query(`select 1 from ${BUCKETS} for update`);
    const claim = makeClaim("key");
    const started = performance.now();
    await expect(driver.claim(claim)).rejects.toThrow("postgres: no answer within 700 ms");
    expect(performance.now() - started).toBeLessThan(3_000);
    await expect(driver.release([{ claim, hasUnansweredClaim: true }])).rejects.toThrow("no answer within 700 ms");
    await locker.query("rollback");
    await locker.end();
    expect(await driver.release([{ claim, hasUnansweredClaim: true }])).toEqual([expect.any(Boolean)]);
    expect(await driver.claim(claim)).toEqual({ state: "none", reason: "released" });
    expect(await fixture.inspect()).toEqual([]);
  });

  test("the wait for a bucket row ends on the server, too: abandoned calls do not pile up there", async () => {
    const { driver } = await fixture.open({ commandTimeoutMs: 10_000 });
    const locker = new Client(fixture.database.url);
    await locker.connect();
    await locker.query("begin");
    await locker.query(`select 1 from ${BUCKETS} for update`);
    await expect(driver.claim(makeClaim("key"))).rejects.toThrow(/pg_blocking_pids.*55P03/);
    await locker.query("rollback");
    await locker.end();
  });

  test("a call that waited for a row judges leases by the time after the wait", async () => {
    const { driver } = await fixture.open();
    const [held, next] = [makeClaim("key", { ttlMs: 1_000 }), makeClaim("key", { ttlMs: 20_000 })];
    expect((await driver.claim(held)).state).toBe("held");
    const locker = new Client(fixture.database.url);
    await locker.connect();
    await locker.query("begin");
    await locker.query(`select 1 from ${BUCKETS} for update`);
    const claiming = driver.claim(next);
    const isOver = async (): Promise<boolean> => {
      const [row] = await fixture.database.query(`select
        (select expires from holdfast.holdfast_1_claims) < holdfast.holdfast_1_read_clock() as is_over,
        exists (select from pg_stat_activity where wait_event_type = 'Lock' and query ~ '_claim') as is_blocked`);
      return row?.is_over === true && row.is_blocked === true;
    };
    await until(isOver, { within: 5_000, what: "the end of the lease while the claim waits for the row" });
    await locker.query("rollback");
    await locker.end();
    expect(await claiming).toMatchObject({ state: "held", remainingMs: 20_000 });
  });

  test("a statement_timeout that is too short for a wait is named, and the claim is not made", async () => {
    await fixture.database.query(`alter database ${fixture.database.name} set statement_timeout = '300ms'`);
    const { driver } = await fixture.open();
    const locker = new Client(fixture.database.url);
    await locker.connect();
    await locker.query("begin");
    await locker.query(`select 1 from ${BUCKETS} for update`);
    await expect(driver.claim(makeClaim("key"))).rejects.toThrow(/statement_timeout.*57014/);
    await locker.query("rollback");
    await locker.end();
    expect(await fixture.database.query("select id from holdfast.holdfast_1_claims")).toEqual([]);
  });
});
