// While another session keeps a table locked, processes have no more sessions than their pools, and nothing waits in the server for long.

import { Client } from "pg";
import { expect, test } from "vitest";
import type { Locks } from "../../../src/index.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const PROCESSES = 3;
const POOL = 4;
const LOCKED_MS = 8_000;
const COUNT_SESSIONS =
  "select count(*)::int as n from pg_stat_activity where datname = current_database() and application_name <> 'test'";

withPostgres(
  (server) => {
    /** Requests of every kind, each of which fails. */
    const startLoad = (locks: Locks, isOver: () => boolean): Promise<unknown> => {
      const repeat = async (call: (index: number) => Promise<unknown>): Promise<void> => {
        for (let index = 0; !isOver(); index++) await call(index).catch(() => undefined);
      };
      const acquire = async (index: number): Promise<void> => {
        const lock = await locks.acquire(`key ${index % 50}`, { wait: "500ms" });
        await lock.release();
      };
      return Promise.all([...Array.from({ length: 20 }, () => repeat(acquire)), repeat(() => locks.list(""))]);
    };

    // side by side, each in a database of its own
    test.concurrent.for([undefined, 1_500])(
      `sessions of ${PROCESSES} processes under LOCK TABLE are those of their pools, and one each that listens: commandTimeoutMs %j`,
      async (commandTimeoutMs, { onTestFinished }) => {
        const fixture = await createPostgresFixture(server());
        onTestFinished(() => fixture.close());
        const driverOptions = { max: POOL, ...(commandTimeoutMs !== undefined && { commandTimeoutMs }) };
        const processes = Array.from({ length: PROCESSES }, () => fixture.locks({ ttl: "30s" }, driverOptions));
        await Promise.all(processes.map((locks, index) => locks.acquire(`held ${index}`)));
        const settings = { connectionString: fixture.database.url, application_name: "test" };
        const [locker, observer] = [new Client(settings), new Client(settings)];
        await Promise.all([locker.connect(), observer.connect()]);
        await locker.query("begin; lock table holdfast.holdfast_1_claims in access exclusive mode");
        const end = performance.now() + LOCKED_MS;
        const loads = processes.map((locks) => startLoad(locks, () => performance.now() >= end));
        let most = 0;
        while (performance.now() < end) {
          const { rows } = await observer.query(COUNT_SESSIONS);
          most = Math.max(most, Number(rows[0]?.n));
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
        await locker.query("rollback");
        await Promise.all(loads);
        await Promise.all([locker.end(), observer.end()]);
        expect(most).toBeLessThanOrEqual(PROCESSES * (POOL + 1));
      },
    );
  },
  { settings: { log_min_messages: "fatal" } },
);
