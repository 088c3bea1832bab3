import { expect, test } from "vitest";
import { withPostgres } from "../../support/stores/sql-fixture.ts";
import { findPostgresViolations } from "../../support/stores/sql-inspector.ts";
import { EXPECTED_VIOLATIONS, wrongTables } from "../../support/stores/sql-inspector-tables.ts";

withPostgres((server) => {
  test("the inspector finds what is wrong with the tables", async () => {
    const database = await server().freshDatabase();
    await database.query("create schema locks");
    const counts =
      ", key text, first_arrival bigint, waits_from bigint, used bigint, next_expiry bigint, counted bigint";
    const statements = wrongTables((table) => `locks.${table}`, "key", "text", "highest_token", counts);
    for (const statement of statements) await database.query(statement);
    expect(await findPostgresViolations(database.query, { schema: "locks" })).toEqual(EXPECTED_VIOLATIONS);
  });
});
