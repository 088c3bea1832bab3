import { expect, test } from "vitest";
import { withPostgres } from "../../support/stores/sql-fixture.ts";
import { findPostgresViolations } from "../../support/stores/sql-inspector.ts";
import { EXPECTED_VIOLATIONS, wrongTables } from "../../support/stores/sql-inspector-tables.ts";

withPostgres((server) => {
  test("the inspector finds what is wrong with the tables", async () => {
    const database = await server().freshDatabase();
    await database.query("create schema locks");
    for (const statement of wrongTables((table) => `locks.${table}`, "key", "text")) await database.query(statement);
    expect(await findPostgresViolations(database.query, { schema: "locks" })).toEqual(EXPECTED_VIOLATIONS);
  });
});
