// Connections and servers that end in the middle of calls, and sessions that keep rows locked.

import { Client } from "pg";
import { afterEach, beforeEach, expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { startPgBouncer } from "../../support/stores/pgbouncer.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";
import type { TurnTaking } from "../../support/stores/turn-taking.ts";
import { startTurnTaking } from "../../support/stores/turn-taking.ts";

const BUCKETS = "holdfast.holdfast_1_buckets";

withPostgres((server) => {
  let fixture: PostgresFixture;
  beforeEach(async () => {
    fixture = await createPostgresFixture(server());
  });
  afterEach(() => fixture.close());

  const startLoad = (settings: { readonly url?: string } = {}): Promise<TurnTaking> => {
    const clients = Array.from({ length: 4 }, () => fixture.locks({ ttl: "30s", order: "strict" }, settings));
    return startTurnTaking(clients, fixture.inspect);
  };

  test("random connections killed in the middle of calls: no key is held twice, and everyone goes on", async () => {
    const kill = `select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid() and random() < 0.7`;
    const load = await startLoad();
    await load.survive(() => fixture.database.query(kill), 10);
    await load.finish();
  });

  /** Its processes may still hold the lock file. */
  const startAgain = (): Promise<unknown> => {
    const start = (): Promise<boolean> =>
      server()
        .start()
        .then(
          () => true,
          () => false,
        );
    return until(start, { within: 20_000, what: "the start after the crash" });
  };

  test("a server that is restarted, shut down at once, or crashes, under load", async () => {
    const ways = [
      () => server().restart(),
      async () => {
        // an immediate shutdown: its processes end without a word to their clients
        process.kill(server().pid, "SIGQUIT");
        await server().stop();
        await startAgain();
      },
      async () => {
        await server().crash();
        await startAgain();
      },
    ];
    const load = await startLoad();
    await load.survive(async () => ways.shift()?.(), 3);
    await load.finish();
  });

  test("a pooler in transaction mode that swaps its connections while it, or the server, restarts serves rows; pushes are missed and reported", async () => {
    // it replaces connections all the time, and does not wait long for a server that was away
    const settings = { server_lifetime: "1", server_login_retry: "1" };
    const pooler = await startPgBouncer(server().port, { poolSize: 4, settings });
    const load = await startLoad({ url: pooler.urlOf(fixture.database.name) });
    const reconnect = async (): Promise<void> => {
      const console = new Client(pooler.consoleUrl);
      await console.connect();
      await console.query("reconnect");
      await console.end();
    };
    const ways = [
      async () => {
        await pooler.stop();
        await pooler.start();
      },
      () => Promise.all([server().restart(), reconnect()]),
      async () => {
        await server().crash();
        await Promise.all([startAgain(), reconnect()]);
      },
      reconnect,
    ];
    await load.survive(async () => ways.shift()?.(), 4);
    await load.finish();
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
    await expect(driver.claim(claim)).rejects.toThrow(/took longer than a call may.*57014/);
    expect(performance.now() - started).toBeLessThan(3_000);
    await expect(driver.release([{ claim, hasUnansweredClaim: true }])).rejects.toThrow(/57014/);
    // the server has ended them before their clients gave them up
    expect(await fixture.database.query("select 1 from pg_stat_activity where wait_event_type = 'Lock'")).toEqual([]);
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

  test("a statement_timeout that is too short for a wait does not end it", async () => {
    await fixture.database.query(`alter database ${fixture.database.name} set statement_timeout = '300ms'`);
    const { driver } = await fixture.open();
    const locker = new Client(fixture.database.url);
    await locker.connect();
    await locker.query("begin; set local statement_timeout = 0");
    await locker.query(`select 1 from ${BUCKETS} for update`);
    const claiming = driver.claim(makeClaim("key"));
    const isRepeated = async (): Promise<boolean> => {
      const text = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like 'set local%'";
      return (await fixture.database.query(text)).length > 0;
    };
    await until(isRepeated, { within: 5_000, what: "the call to be repeated" });
    await locker.query("rollback");
    await locker.end();
    expect(await claiming).toMatchObject({ state: "held" });
  });
});
