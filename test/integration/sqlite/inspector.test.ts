import Database from "libsql";
import { expect, test } from "vitest";
import { sqlite } from "../../../src/drivers/sql/sqlite/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { findSqliteViolations } from "../../support/stores/sql-inspector.ts";
import { EXPECTED_VIOLATIONS, wrongTables } from "../../support/stores/sql-inspector-tables.ts";
import { useSqliteFiles } from "../../support/stores/sqlite.ts";

const newFile = useSqliteFiles();

test("a driver that opens leaves a key in order whose holder has expired while others wait", async () => {
  const path = newFile();
  const [first, second] = [sqlite(path), sqlite(path)];
  await first.open(NO_EVENTS);
  const [held, waiting] = [makeClaim("k", { ttlMs: 50 }), makeClaim("k", { ttlMs: 60_000 })];
  expect(await first.claim(held)).toMatchObject({ state: "held" });
  expect(await first.claim(waiting)).toMatchObject({ state: "waiting" });
  const database = new Database(path);
  const query = async (text: string): Promise<Record<string, unknown>[]> =>
    database.prepare(text).all() as Record<string, unknown>[];
  const hasExpired = async (): Promise<boolean> => {
    const [row] = await query("select unixepoch('subsec') * 1000000 > min(expires) as yes from holdfast_2_claims");
    return row?.yes === 1;
  };
  await until(hasExpired, { within: 5_000, what: "the end of the lease" });
  await second.open(NO_EVENTS);
  expect(await findSqliteViolations(query)).toEqual([]);
  expect(await second.renew([waiting], [1])).toMatchObject([{ state: "held" }]);
  expect(await findSqliteViolations(query)).toEqual([]);
  database.close();
  await first.close();
  await second.close();
});

test("a driver that opens removes waiters that died, also behind one that waits for long, unless a live one is behind them", async () => {
  const path = newFile();
  const [first, second] = [sqlite(path), sqlite(path)];
  await first.open(NO_EVENTS);
  for (const ttlMs of [60_000, 60_000, 100, 60_000, 100, 100]) await first.claim(makeClaim("k", { ttlMs }));
  const database = new Database(path);
  const query = async (text: string): Promise<Record<string, unknown>[]> =>
    database.prepare(text).all() as Record<string, unknown>[];
  const haveExpired = async (): Promise<boolean> => {
    const [row] = await query(
      "select count(*) as count from holdfast_2_claims where unixepoch('subsec') * 1000000 > expires",
    );
    return row?.count === 3;
  };
  await until(haveExpired, { within: 5_000, what: "the end of the short leases" });
  await second.open(NO_EVENTS);
  expect(await query("select arrival from holdfast_2_claims order by arrival")).toEqual(
    [1, 2, 3, 4].map((arrival) => ({ arrival })),
  );
  expect(await findSqliteViolations(query)).toEqual([]);
  database.close();
  await first.close();
  await second.close();
});

test("the inspector finds what is wrong with the tables", async () => {
  const database = new Database(":memory:");
  for (const statement of wrongTables((table) => table.replace("_1_", "_2_"), "key", "text")) database.exec(statement);
  database.exec("create table holdfast_2_totals (key text, used integer, first_expires integer)");
  const query = async (text: string): Promise<Record<string, unknown>[]> =>
    database.prepare(text).all() as Record<string, unknown>[];
  expect(await findSqliteViolations(query)).toEqual(EXPECTED_VIOLATIONS);
  database.close();
});
