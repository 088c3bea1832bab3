// Rows with a version column in SQLite.

import Database from "libsql";
import { beforeEach, describe, expect, test } from "vitest";
import { optimistic } from "../../../src/optimistic/index.ts";
import { queryOnce, useSqliteFiles } from "../../support/stores/sqlite.ts";
import { createStockTable, PATIENT, stockRow, takeOne, testVersionedRow } from "../../support/versioned-row-tests.ts";

const newFile = useSqliteFiles();
let path = newFile();

const query = (text: string) => queryOnce(new Database(path), text);

beforeEach(async () => {
  path = newFile();
  await query("pragma journal_mode = wal");
});

testVersionedRow(
  "libsql",
  () => {
    const database = new Database(path);
    return { handle: database, close: () => database.close() };
  },
  query,
);

describe("another connection is writing", () => {
  beforeEach(() => createStockTable(query));

  test("the write finds the database locked: retried", async () => {
    const [database, other] = [new Database(path), new Database(path)];
    database.exec("pragma busy_timeout = 0");
    const result = await optimistic(
      stockRow(database),
      (row, { attempt }) => {
        if (attempt === 1) other.exec("begin immediate");
        if (attempt === 3) other.exec("commit");
        return takeOne(row);
      },
      PATIENT,
    );
    expect(result).toMatchObject({ status: "written", retries: 2 });
    expect(await query("select left_count, version from t_stock where id = 1")).toEqual([
      { left_count: 99n, version: 1n },
    ]);
    database.close();
    other.close();
  });

  test("inside a transaction: one attempt", async () => {
    const database = new Database(path);
    database.exec("pragma busy_timeout = 0");
    database.exec("begin");
    const failed = optimistic(stockRow(database), async (row) => {
      await query("update t_stock set version = version + 1 where id = 1");
      return takeOne(row);
    });
    await expect(failed).rejects.toMatchObject({
      code: "LOCK_VERSION_CONFLICT",
      attempts: 1,
      message: /inside a transaction/,
    });
    database.exec("rollback");
    database.close();
  });
});
