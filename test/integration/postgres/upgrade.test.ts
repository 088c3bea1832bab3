// An upgrade beside a session that has read the tables and stays in its transaction, as a dump does: locks of other processes go on.

import { Client } from "pg";
import { afterEach, beforeEach, expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const TTL_MS = 2_000;

withPostgres((server) => {
  let fixture: PostgresFixture;
  let reader: Client;
  beforeEach(async () => {
    fixture = await createPostgresFixture(server());
    await (await fixture.open()).driver.close();
    reader = new Client(fixture.database.url);
    await reader.connect();
  });
  afterEach(async () => {
    await reader.end();
    await fixture.close();
  });

  const query = (text: string): ReturnType<typeof fixture.database.query> => fixture.database.query(text);
  const readAllTables = async (): Promise<void> => {
    await reader.query("begin isolation level repeatable read");
    for (const table of ["layout", "1_buckets", "1_claims", "1_tombstones", "1_identity"]) {
      await reader.query(`select * from holdfast.holdfast_${table}`);
    }
  };
  const listWaiting = (): ReturnType<typeof query> =>
    query("select query from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()");

  test("functions are replaced beside it, and no lock of an older process is lost", async () => {
    const locks = fixture.locks({ ttl: `${TTL_MS}ms` });
    const held = await Promise.all(Array.from({ length: 20 }, (_, index) => locks.acquire(`key ${index}`)));
    await readAllTables();
    await query("update holdfast.holdfast_layout set revision = 4, oldest_caller = 2");
    const { driver } = await fixture.open();
    await driver.close();
    expect(await query("select revision > 5 as is_current from holdfast.holdfast_layout")).toEqual([
      { is_current: true },
    ]);
    await new Promise((resolve) => setTimeout(resolve, 1.5 * TTL_MS));
    for (const lock of held) lock.throwIfLost();
    await reader.query("rollback");
    expect(await fixture.inspect()).toEqual([]);
  });

  test("a table that must be changed is left until it ends: the refusal names it, and nothing waits behind the change for long", async () => {
    const locks = fixture.locks({ ttl: "60s" });
    const held = await locks.acquire("held");
    await query("alter table holdfast.holdfast_1_claims drop column recall");
    for (const column of ["key", "first_arrival", "waits_from", "used", "next_expiry", "counted", "is_recallable"]) {
      await query(`alter table holdfast.holdfast_1_buckets drop column ${column}`);
    }
    await query("alter table holdfast.holdfast_1_buckets rename column highest_token to last_token");
    await query("update holdfast.holdfast_layout set revision = 4, oldest_caller = 2");
    await readAllTables();
    const opening = fixture.driver({ connectTimeout: 5_000 }).open(NO_EVENTS);
    const refused = expect(opening).rejects.toThrow(/perhaps a dump.*pg_blocking_pids.*55P03/);
    let [longestMs, count] = [0, 0];
    let isOver = false;
    void refused.then(
      () => (isOver = true),
      () => (isOver = true),
    );
    while (!isOver) {
      const startedAt = performance.now();
      await query("select count(*) from holdfast.holdfast_1_claims");
      longestMs = Math.max(longestMs, performance.now() - startedAt);
      count++;
    }
    await refused;
    expect(count).toBeGreaterThan(3);
    expect(longestMs).toBeLessThan(TTL_MS);
    // what an attempt that was given up has left there ends by its own bound
    await until(async () => (await listWaiting()).length === 0, { within: 2_000, what: "nothing that waits" });
    await reader.query("rollback");
    const { driver } = await fixture.open();
    expect(await query("select count(recall)::int as n from holdfast.holdfast_1_claims")).toEqual([{ n: 1 }]);
    await driver.close();
    expect(await locks.tryAcquire("held")).toBeNull();
    expect(await fixture.inspect()).toEqual([]);
    expect(await held.release()).toBe(true);
  });
});
