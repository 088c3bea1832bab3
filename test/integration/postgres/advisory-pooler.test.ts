// Advisory locks behind a busy PgBouncer in transaction mode: no client believes a lock that its session lacks or shares.

import { Pool } from "pg";
import { describe, expect, onTestFinished, test } from "vitest";
import { adaptPostgresClient } from "../../../src/drivers/sql/clients/detect.ts";
import { createPostgresAdvisoryDialect } from "../../../src/drivers/sql/postgres/advisory-dialect.ts";
import { postgresAdvisory } from "../../../src/drivers/sql/postgres/driver.ts";
import { createLocks } from "../../../src/index.ts";
import type { Claim, Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { toDriverEvents } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import type { PgBouncer } from "../../support/stores/pgbouncer.ts";
import { startPgBouncer } from "../../support/stores/pgbouncer.ts";
import { findPoolerLeftovers, setPoolMode, startPoolerLoad } from "../../support/stores/pooler-load.ts";
import { readAdvisoryLocks } from "../../support/stores/postgres-advisory.ts";
import type { TestDatabase } from "../../support/stores/sql-database.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const IS_LONG_RUN = process.env.HOLDFAST_LONG === "1";
/** Pairs of clients that open at the same time. */
const PAIRS = IS_LONG_RUN ? 100 : 12;
/** Changes of the pooler's mode. */
const CHANGES = IS_LONG_RUN ? 40 : 5;
const REFUSAL = /a pooler in transaction mode is in between/;

withPostgres((server) => {
  describe.each([2, 5, 20])("a pool of %i", (poolSize) => {
    test("of two clients that open at most one believes that it has the lock, and neither leaves anything behind", async () => {
      const database = await server().freshDatabase();
      const bouncer = await startPgBouncer(server().port, { poolSize });
      onTestFinished(() => bouncer.dispose());
      const stopLoad = await startPoolerLoad(bouncer, database, 2 * poolSize);
      const accepted: Subject[] = [];
      for (let pair = 0; pair < PAIRS; pair++) {
        const subjects = [createSubject(bouncer, database), createSubject(bouncer, database)];
        const opened = await Promise.all(subjects.map((subject) => subject.open()));
        const users = subjects.filter((_, index) => opened[index]);
        accepted.push(...users);
        await Promise.all(users.map((user) => user.tryLock(`key ${pair}`)));
        expect(users.filter(({ believes }) => believes).length).toBeLessThanOrEqual(1);
        for (const user of users) await user.close();
      }
      await stopLoad();
      // by chance, each of twenty statements met the session that it was to meet, and nobody else did in between
      expect(accepted.length).toBeLessThanOrEqual(1);
      expect(await findPoolerLeftovers(bouncer, database, poolSize)).toEqual([]);
      expect(await readAdvisoryLocks(database.query)).toEqual([]);
    });
  });

  test("a session that two clients of a pooler have is the one's who marked it", async () => {
    const database = await server().freshDatabase();
    const pool = new Pool({ connectionString: database.url });
    const connection = await adaptPostgresClient(pool).connect();
    const dialect = createPostgresAdvisoryDialect();
    const { id } = await dialect.identify(connection);
    const [first, second] = [
      { id, mark: "first" },
      { id, mark: "second" },
    ];
    const mode = { lock: dialect.toLock("key"), isShared: false };
    const readKeepalives = async () =>
      (await connection.query("select name, setting::int from pg_settings where name like 'tcp_keep%' order by name"))
        .rows;
    const before = await readKeepalives();
    expect(await dialect.prepare(connection, first, 30_000)).toBe(true);
    expect((await readKeepalives()).map(({ setting }) => setting)).toEqual([3, 8, 8]);
    expect(await dialect.prepare(connection, second, 20_000)).toBeNull();
    expect((await connection.query("show idle_session_timeout")).rows).toEqual([{ idle_session_timeout: "30s" }]);
    for (const call of [dialect.tryLock, dialect.waitForLock]) {
      expect(await call(connection, second, mode)).toBeNull();
      expect(await readAdvisoryLocks(database.query)).toEqual([]);
      expect(await call(connection, first, mode)).toBe(true);
      expect(await dialect.unlock(connection, second, mode)).toBeNull();
      expect(await dialect.unlockAll(connection, second, [mode, mode])).toBeNull();
      expect(await dialect.probe(connection, second)).toBeNull();
      expect(await dialect.restore(connection, second)).toBeNull();
      expect(await readAdvisoryLocks(database.query)).toHaveLength(1);
      expect(await dialect.unlock(connection, first, mode)).toBe(true);
    }
    expect(await dialect.restore(connection, first)).toBe(true);
    expect(await readKeepalives()).toEqual(before);
    expect(await dialect.prepare(connection, second, 20_000)).toBe(true);
    connection.release();
    await pool.end();
  });

  test("clients that were accepted, and share sessions from then on, lose their locks at the first call that meets another session", async () => {
    const poolSize = 5;
    const database = await server().freshDatabase();
    for (let change = 0; change < CHANGES; change++) {
      const bouncer = await startPgBouncer(server().port, { poolSize, mode: "session" });
      const users = [createSubject(bouncer, database), createSubject(bouncer, database)];
      const unused = createSubject(bouncer, database);
      for (const user of [...users, unused]) expect(await user.open()).toBe(true);
      await setPoolMode(bouncer, "transaction");
      const stopLoad = await startPoolerLoad(bouncer, database, 2 * poolSize);
      const errors = await Promise.all(
        users.map(async (user) => {
          for (;;) {
            try {
              await user.tryLock("key");
            } catch (error) {
              return error;
            }
            expect(users.filter(({ believes }) => believes).length).toBeLessThanOrEqual(1);
            await user.renew();
            await user.unlock();
          }
        }),
      );
      for (const error of errors) expect(error).toMatchObject({ message: expect.stringMatching(REFUSAL) });
      await unused.close();
      for (const user of users) {
        // nor is it accepted now
        await expect(user.tryLock("key")).rejects.toThrow(REFUSAL);
        await user.close();
      }
      await stopLoad();
      expect(await findPoolerLeftovers(bouncer, database, poolSize)).toEqual([]);
      expect(await readAdvisoryLocks(database.query)).toEqual([]);
      await bouncer.dispose();
    }
  });

  test("claims that wait at the server while their pooler begins to share sessions leave nothing behind", async () => {
    const [keys, poolSize] = [["a", "b", "c"], 12];
    const database = await server().freshDatabase();
    for (let change = 0; change < CHANGES; change++) {
      const bouncer = await startPgBouncer(server().port, { poolSize, mode: "session" });
      const holder = createLocks(postgresAdvisory(() => new Pool({ connectionString: database.url })));
      const held = await Promise.all(keys.map((key) => holder.acquire(key)));
      const pools = [createPool(bouncer, database), createPool(bouncer, database)];
      const waiters = pools.map((pool) => createLocks(postgresAdvisory(pool, { sessionMs: 20_000 })));
      const errors = waiters.flatMap((locks) =>
        keys.map((key) =>
          locks.acquire(key).then(
            (lock) => lock.release(),
            (error: unknown) => error,
          ),
        ),
      );
      const isWaiting = async () =>
        (await readAdvisoryLocks(database.query)).filter(({ isGranted }) => !isGranted).length === errors.length;
      await until(isWaiting, { within: 5_000, what: "the waits" });
      await setPoolMode(bouncer, "transaction");
      const stopLoad = await startPoolerLoad(bouncer, database, 2 * poolSize);
      for (const lock of held) await lock.release();
      await Promise.all(errors);
      for (const locks of [...waiters, holder]) await locks.close();
      for (const pool of pools) await pool.end();
      await stopLoad();
      expect(await readAdvisoryLocks(database.query)).toEqual([]);
      expect(await findPoolerLeftovers(bouncer, database, poolSize)).toEqual([]);
      await bouncer.dispose();
    }
  });
});

interface Subject {
  /** Was it told that it has the lock, and not that it has lost it? */
  readonly believes: boolean;
  /** False: it was refused. */
  open(): Promise<boolean>;
  tryLock(key: string): Promise<void>;
  renew(): Promise<void>;
  unlock(): Promise<void>;
  close(): Promise<void>;
}

function createPool(bouncer: PgBouncer, { name }: TestDatabase): Pool {
  return new Pool({ connectionString: bouncer.urlOf(name), max: 1 });
}

function createSubject(bouncer: PgBouncer, database: TestDatabase): Subject {
  const pool = createPool(bouncer, database);
  const driver: Driver = postgresAdvisory(pool, { sessionMs: 20_000 });
  let held: Claim | null = null;
  const close = async (): Promise<void> => {
    held = null;
    await driver.close();
    await pool.end();
  };
  return {
    get believes() {
      return held !== null;
    },
    async open() {
      try {
        await driver.open(
          toDriverEvents((id, answer) => {
            if (id === held?.id && answer?.state !== "held") held = null;
          }),
        );
        return true;
      } catch (error) {
        expect(error).toMatchObject({ message: expect.stringMatching(REFUSAL) });
        await close();
        return false;
      }
    },
    async tryLock(key) {
      const claim = makeClaim(key, { ttlMs: "session", wait: false });
      if ((await driver.claim(claim)).state === "held") held = claim;
    },
    async renew() {
      if (held === null) return;
      const [answer] = await driver.renew([held]);
      if (answer?.state === "none") held = null;
    },
    async unlock() {
      if (held === null) return;
      const claim = held;
      held = null;
      await driver.release(toReleases(claim));
    },
    close,
  };
}
