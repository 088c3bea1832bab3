// What waiting costs the server.

import { afterEach, beforeEach, expect, test } from "vitest";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";
import { until } from "../../support/until.ts";

const WAITER_COUNT = 500;
/** Long enough that a renewal which joins a batch early restarts its lease: then all are due together from then on. */
const TTL_MS = 15_000;
/** Renewals that are due within this time share a statement. */
const JOIN_MS = 1_000;

withPostgres(
  (server) => {
    let fixture: PostgresFixture;
    beforeEach(async () => {
      fixture = await createPostgresFixture(server());
      await fixture.database.query("create extension pg_stat_statements");
    });
    afterEach(() => fixture.close());

    test(`${WAITER_COUNT} waiters of a process cost one statement in a third of their ttl for each second in which they came`, async () => {
      const holder = fixture.locks({ ttl: 120_000 });
      const locks = fixture.locks({ ttl: TTL_MS });
      const keys = ["a", "b", "c", "d", "e"];
      const held = await Promise.all(keys.map((key) => holder.acquire(key)));
      const startedAt = performance.now();
      const waiting = Array.from({ length: WAITER_COUNT }, (_, index) =>
        locks.rw(keys[index % keys.length] as string).read.acquire(),
      );
      const rowCount = WAITER_COUNT + keys.length;
      await until(
        async () => (await readCount("select count(*) as count from holdfast.holdfast_1_claims")) === rowCount,
        {
          within: 60_000,
          what: "all waiters",
        },
      );
      // the connection that listens has opened meanwhile, after which all of them were asked about once
      await until(() => hasSettled(), { within: 10_000, what: "no statement for half a second" });
      const batchCount = 1 + Math.floor((performance.now() - startedAt) / JOIN_MS);
      const [since, before] = [performance.now(), await countStatements()];
      await until(() => performance.now() - since > TTL_MS / 3, { within: TTL_MS, what: "a third of the ttl" });
      const statements = (await countStatements()) - before;
      expect(statements).toBeGreaterThan(0);
      expect(statements).toBeLessThanOrEqual(batchCount);
      await Promise.all(held.map((lock) => lock.release()));
      for (const lock of await Promise.all(waiting)) await lock.release();
    });

    async function readCount(text: string): Promise<number> {
      const [row] = await fixture.database.query(text);
      return Number(row?.count);
    }

    async function hasSettled(): Promise<boolean> {
      const [before, since] = [await countStatements(), performance.now()];
      await until(() => performance.now() - since > 500, { within: 5_000, what: "half a second" });
      return (await countStatements()) === before;
    }

    /** Calls of functions. The listening connection is probed besides, at most once in five seconds. */
    function countStatements(): Promise<number> {
      return readCount(`select coalesce(sum(calls), 0) as count from pg_stat_statements
      where query like '%holdfast_1_%' and query not like '%pg_stat_statements%'
        and dbid = (select oid from pg_database where datname = current_database())`);
    }
  },
  { settings: { shared_preload_libraries: "pg_stat_statements" } },
);
