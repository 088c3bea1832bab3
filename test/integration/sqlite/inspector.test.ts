import Database from "libsql";
import { expect, test } from "vitest";
import { findSqliteViolations } from "../../support/stores/sql-inspector.ts";
import { EXPECTED_VIOLATIONS, wrongTables } from "../../support/stores/sql-inspector-tables.ts";

test("the inspector finds what is wrong with the tables", async () => {
  const database = new Database(":memory:");
  for (const statement of wrongTables((table) => table, "key", "text")) database.exec(statement);
  const query = async (text: string): Promise<Record<string, unknown>[]> =>
    database.prepare(text).all() as Record<string, unknown>[];
  expect(await findSqliteViolations(query)).toEqual(EXPECTED_VIOLATIONS);
  database.close();
});
