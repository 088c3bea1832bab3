// The two statements that make a claim of a key without claims, and those that release a claim that is alone at its key, beside
// the calls that walk a queue.

import { Client } from "pg";
import { afterEach, beforeEach, expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import type { OpenDriver, PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const BUCKETS = "holdfast.holdfast_1_buckets";

checkLeaksAfterEach();

withPostgres((server) => {
  let fixture: PostgresFixture;
  let one: OpenDriver;
  let other: OpenDriver;
  beforeEach(async () => {
    fixture = await createPostgresFixture(server());
    [one, other] = [await fixture.open(), await fixture.open()];
  });
  afterEach(() => fixture.close());

  /** Makes the calls in this order, while the bucket rows are locked: each waits for its row. */
  async function callAtOnce(calls: readonly (() => Promise<unknown>)[]): Promise<unknown[]> {
    const locker = new Client(fixture.database.url);
    await locker.connect();
    await locker.query("begin");
    await locker.query(`select 1 from ${BUCKETS} for update`);
    const pending: Promise<unknown>[] = [];
    for (const call of calls) {
      pending.push(call());
      const countBlocked = async (): Promise<boolean> => {
        const [row] = await fixture.database.query(
          "select count(*)::int as n from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
        );
        return row?.n === pending.length;
      };
      await until(countBlocked, { within: 5_000, what: `${pending.length} calls that wait for the bucket's row` });
    }
    await locker.query("rollback");
    await locker.end();
    return Promise.all(pending);
  }

  test("two first claims that wait for the bucket's row: one is held, the other waits for it", async () => {
    const [first, second] = [makeClaim("key"), makeClaim("key")];
    const answers = await callAtOnce([() => one.driver.claim(first), () => other.driver.claim(second)]);
    expect(answers).toMatchObject([{ state: "held" }, { state: "waiting" }]);
    expect(await fixture.inspect()).toEqual([]);
  });

  test("a claim waits behind a later one after the first of its key has been released", async () => {
    const [first, second, third] = [makeClaim("key"), makeClaim("key"), makeClaim("key")];
    await one.driver.claim(first);
    await one.driver.claim(second);
    await one.driver.release(toReleases(first));
    expect(await other.driver.claim(third)).toMatchObject({ state: "waiting" });
    expect(await fixture.inspect()).toEqual([]);
  });

  test("a claim that comes just before the release of the only one is granted by it", async () => {
    const [held, next] = [makeClaim("key"), makeClaim("key")];
    await one.driver.claim(held);
    const calls = [() => other.driver.claim(next), () => one.driver.release(toReleases(held))];
    expect(await callAtOnce(calls)).toMatchObject([{ state: "waiting" }, [true]]);
    expect(await fixture.database.query("select id, token > 0 as is_held from holdfast.holdfast_1_claims")).toEqual([
      { id: next.id, is_held: true },
    ]);
    expect(await fixture.inspect()).toEqual([]);
  });

  test("a claim that comes just after the release of the only one is held", async () => {
    const [held, next] = [makeClaim("key"), makeClaim("key")];
    await one.driver.claim(held);
    const calls = [() => one.driver.release(toReleases(held)), () => other.driver.claim(next)];
    expect(await callAtOnce(calls)).toMatchObject([[true], { state: "held" }]);
    expect(await fixture.inspect()).toEqual([]);
  });

  test("a lone claim that was detached or revoked, or has expired, leaves what its end says", async () => {
    const [detached, revoked, expired] = [makeClaim("a"), makeClaim("b"), makeClaim("c")];
    for (const claim of [detached, revoked, expired]) await one.driver.claim(claim);
    await one.driver.detach?.([detached]);
    await fixture.database.query(`update holdfast.holdfast_1_claims set state = 'r' where key = 'b'`);
    await fixture.database.query(`update holdfast.holdfast_1_claims set expires = 1 where key = 'c'`);
    expect(await one.driver.release(toReleases(detached))).toEqual([true]);
    expect(await one.driver.release(toReleases(revoked))).toEqual([false]);
    expect(await one.driver.release(toReleases(expired))).toEqual([false]);
    expect(
      await fixture.database.query("select id, reason from holdfast.holdfast_1_tombstones order by reason"),
    ).toEqual([
      { id: detached.id, reason: "released" },
      { id: revoked.id, reason: "revoked" },
    ]);
    expect(await fixture.inspect()).toEqual([]);
  });
});
