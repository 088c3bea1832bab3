// Connections that are killed, locked out or missing, and a server that restarts: no lock is held twice, none is left behind.

import { createConnection } from "mysql2";
import { afterEach, beforeEach, expect, test } from "vitest";
import { mysql } from "../../../src/drivers/sql/mysql/driver.ts";
import { toBucket } from "../../../src/drivers/sql/schema.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import { ConnectionUse } from "../../support/stores/connection-use.ts";
import type { FixtureOptions, MysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { createMysqlFixture, listCalls, lockBucket } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";
import { startTurnTaking } from "../../support/stores/turn-taking.ts";

const WAITER_COUNT = 500;

withMariaDb((server) => {
  let fixture: MysqlFixture;
  let clients: Locks[];
  beforeEach(async () => {
    fixture = createMysqlFixture(await server().freshDatabase());
    clients = [];
  });
  afterEach(async () => {
    for (const locks of clients) await locks.close();
    await fixture.close();
    await fixture.database.drop();
  });

  const createClient = (options: FixtureOptions = {}): Locks => {
    const locks = createLocks(fixture.driver(options), { ttl: 30_000 });
    clients.push(locks);
    return locks;
  };

  /** Waits until a call waits for a lock, and ends it. */
  const killCall = async (way: "query" | "connection"): Promise<void> => {
    const findCall = async (): Promise<number | undefined> => (await listCalls(fixture.database))[0];
    const id = await until(findCall, { within: 5_000, what: "a call that waits for a lock" });
    await fixture.database.query(`kill ${way} ${id}`);
  };

  test.each(["query", "connection"] as const)("a call whose %s is killed leaves no lock behind", async (way) => {
    const driver = await fixture.open();
    const [claim, other] = [makeClaim("key"), makeClaim("key")];
    const blocker = await lockBucket(fixture.pool(), toBucket("key"));
    const failed = expect(driver.claim(claim)).rejects.toThrow(/mysql: /);
    await killCall(way);
    await failed;
    await blocker.end();
    expect(await driver.claim(other)).toMatchObject({ state: "held" });
    expect(await driver.release([{ claim, hasUnansweredClaim: true }, ...toReleases(other)])).toEqual([false, true]);
    expect(await driver.claim(claim)).toEqual({ state: "none", reason: "released" });
    expect(await fixture.violations(true)).toEqual([]);
  });

  test("a killed statement leaves no transaction open on a connection that stays open", async () => {
    const client = createConnection({ uri: fixture.database.url });
    const driver = mysql(client, { silenceWarnings: ["durability"] });
    await driver.open(NO_EVENTS);
    const claim = makeClaim("key");
    const blocker = await lockBucket(fixture.pool(), toBucket("key"));
    const failed = expect(driver.claim(claim)).rejects.toMatchObject({ code: "ER_QUERY_INTERRUPTED" });
    await killCall("query");
    await failed;
    await blocker.end();
    expect(await driver.claim(claim)).toMatchObject({ state: "held" });
    expect(await driver.release(toReleases(claim))).toEqual([true]);
    const [rows] = await client.promise().query("select @@in_transaction as open, @@innodb_lock_wait_timeout as wait");
    expect(rows).toEqual([{ open: 0, wait: 50 }]);
    await driver.close();
    client.destroy();
  });

  test("a bucket that another session keeps locked fails calls within their timeout, and locks nothing else", async () => {
    const driver = await fixture.open({ driver: { commandTimeoutMs: 1_500 }, pool: { connectionLimit: 1 } });
    const blocker = await lockBucket(fixture.pool(), toBucket("key"));
    const [claim, other] = [makeClaim("key"), makeClaim("another key")];
    // the server gives up first, so the connection can still be used
    await expect(driver.claim(claim)).rejects.toThrow(
      /another session keeps one of Holdfast's tables, or a row of the buckets table, locked/,
    );
    expect(await driver.claim(other)).toMatchObject({ state: "held" });
    await blocker.end();
    expect(await driver.claim(claim)).toMatchObject({ state: "held" });
    await driver.release(toReleases(claim, other));
    expect(await fixture.violations(true)).toEqual([]);
  });

  test("a claim that waits in the server for a lock ends there before its client gives it up", async () => {
    const driver = await fixture.open({ driver: { commandTimeoutMs: 1_000 } });
    const [repeated, stopped] = [makeClaim("repeated"), makeClaim("stopped")];
    for (const claim of [repeated, stopped]) {
      const blocker = await lockBucket(fixture.pool(), toBucket(claim.locks[0].key));
      await expect(driver.claim(claim)).rejects.toThrow("it took longer than a call may");
      const [release] = claim === stopped ? [driver.release([{ claim, hasUnansweredClaim: true }])] : [];
      // the call and the release wait for the same lock, in any order
      await blocker.end();
      await release;
      await until(async () => (await listCalls(fixture.database)).length === 0, {
        within: 5_000,
        what: "the calls' end",
      });
    }
    expect(await driver.renew([repeated])).toMatchObject([{ state: "none" }]);
    expect(await driver.claim(repeated)).toMatchObject({ state: "held" });
    expect(await driver.claim(stopped)).toEqual({ state: "none", reason: "released" });
    expect(await driver.claim(makeClaim("stopped"))).toMatchObject({ state: "held" });
    expect(await fixture.violations()).toEqual([]);
  });

  test(`${WAITER_COUNT} waiters share a pool of 2 connections, which are free between the calls`, async () => {
    const pool = fixture.pool({ pool: { connectionLimit: 2 } });
    const locks = createLocks(mysql(pool, { silenceWarnings: ["durability"] }), { ttl: 20_000 });
    clients.push(locks);
    const other = createClient();
    const writer = await other.acquire("key");
    // each is a claim of its own: shared locks are not handed over
    const readers = Array.from({ length: WAITER_COUNT }, () => locks.rw("key").read.acquire());
    const countRows = async (): Promise<number> => {
      const [row] = await fixture.database.query("select count(*) as count from holdfast_4_claims");
      return Number(row?.count);
    };
    await until(async () => (await countRows()) === WAITER_COUNT + 1, { within: 30_000, what: "all waiters" });
    // the user's own statement is not kept waiting by claims that wait
    const startedAt = performance.now();
    await pool.promise().query("select 1");
    expect(performance.now() - startedAt).toBeLessThan(2_000);
    await writer.release();
    const granted = await Promise.all(readers);
    expect(new Set(granted.map(({ token }) => token)).size).toBe(WAITER_COUNT);
    expect(await fixture.violations()).toEqual([]);
    await Promise.all(granted.map((lock) => lock.release()));
    await locks.close();
    expect(await fixture.violations(true)).toEqual([]);
  }, 60_000);

  test("64 callers who want one key take one connection of their pool at a time, as long as no call takes longer than a turn", async () => {
    const pool = fixture.pool({ pool: { connectionLimit: 20 } });
    const use = new ConnectionUse();
    const getConnection = pool.getConnection.bind(pool);
    pool.getConnection = (callback) => {
      const returnOne = use.take();
      getConnection((error, connection) => {
        if (error === null) {
          const { release } = connection;
          connection.release = () => {
            returnOne();
            connection.release = release;
            connection.release();
          };
        }
        callback(error, connection);
      });
    };
    const locks = createLocks(mysql(pool, { silenceWarnings: ["durability"] }), { ttl: 30_000 });
    clients.push(locks);
    await Promise.all(
      Array.from({ length: 64 }, async () => {
        const lock = await locks.acquire("key", { wait: "60s", order: "strict" });
        await lock.release();
      }),
    );
    expect(use.takenCount).toBeGreaterThan(100);
    // on a busy machine some have their turn while they wait for a new connection; without turns nearly all overlap
    expect(use.overlapCount / use.takenCount).toBeLessThan(0.2);
    await locks.close();
    expect(await fixture.violations(true)).toEqual([]);
  }, 60_000);

  test("random connections that are killed, and a server that restarts or crashes, under load: no held lock is lost, none is granted twice", async () => {
    const options = { driver: { commandTimeoutMs: 2_000 } };
    const clients = Array.from({ length: 3 }, () => createClient(options));
    const kept = await (clients[0] as Locks).acquire("kept");
    const load = await startTurnTaking(clients, () => fixture.violations());
    const ways = [killSome, killSome, killSome, () => server().restart(), crash, killSome];
    await load.survive(async () => ways.shift()?.(), ways.length);
    await load.finish();
    expect(kept.signal.aborted).toBe(false);
    expect(await kept.release()).toBe(true);
    expect(await fixture.violations()).toEqual([]);
  });

  /** Some that run a statement, or wait for one. */
  async function killSome(): Promise<void> {
    const { database } = fixture;
    const rows = await database.query(
      "select id from information_schema.processlist where db = database() and id <> connection_id() and rand() < 0.6",
    );
    // it may have ended meanwhile
    for (const { id } of rows) await database.query(`kill connection ${id}`).catch(() => undefined);
  }

  async function crash(): Promise<void> {
    await server().crash();
    await server().start();
  }
});
