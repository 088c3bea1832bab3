// While another session keeps a table locked, processes have no more sessions than their pools, and nothing waits in the server for long.

import { expect, test } from "vitest";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import { createMysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

const PROCESSES = 3;
const POOL = 4;
const LOCKED_MS = 8_000;

withMariaDb((server) => {
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
    `sessions of ${PROCESSES} processes under LOCK TABLES are those of their pools: commandTimeoutMs %j`,
    async (commandTimeoutMs, { onTestFinished }) => {
      const fixture = createMysqlFixture(await server().freshDatabase());
      const driver = commandTimeoutMs === undefined ? {} : { commandTimeoutMs };
      const processes = Array.from({ length: PROCESSES }, () =>
        createLocks(fixture.driver({ driver, pool: { connectionLimit: POOL } }), { ttl: "30s" }),
      );
      onTestFinished(async () => {
        for (const locks of processes) await locks.close();
        await fixture.close();
        await fixture.database.drop();
      });
      await Promise.all(processes.map((locks, index) => locks.acquire(`held ${index}`)));
      const other = fixture.pool({ pool: { connectionLimit: 2 } }).promise();
      const [locker, observer] = [await other.getConnection(), await other.getConnection()];
      await locker.query("lock tables holdfast_4_buckets write, holdfast_4_claims write");
      const end = performance.now() + LOCKED_MS;
      const loads = processes.map((locks) => startLoad(locks, () => performance.now() >= end));
      let most = 0;
      while (performance.now() < end) {
        const [rows] = await observer.query(
          "select count(*) as n from information_schema.processlist where db = database()",
        );
        most = Math.max(most, Number((rows as unknown as readonly { readonly n: number }[])[0]?.n) - 2);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      await locker.query("unlock tables");
      await Promise.all(loads);
      locker.release();
      observer.release();
      // a call that has timed out is cancelled: its session may be seen ending beside the one that replaces it
      const ending = commandTimeoutMs === undefined ? 0 : PROCESSES;
      expect(most).toBeLessThanOrEqual(PROCESSES * POOL + ending);
    },
  );
});
