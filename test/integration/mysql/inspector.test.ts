import { expect, test } from "vitest";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";
import { findMySqlViolations } from "../../support/stores/sql-inspector.ts";
import { EXPECTED_VIOLATIONS, wrongTables } from "../../support/stores/sql-inspector-tables.ts";

withMariaDb((server) => {
  test("the inspector finds what is wrong with the tables", async () => {
    const database = await server().freshDatabase();
    for (const statement of wrongTables((table) => table, "`key`", "varbinary(512)")) await database.query(statement);
    expect(await findMySqlViolations(database.query)).toEqual(EXPECTED_VIOLATIONS);
    const elsewhere = await server().freshDatabase();
    expect(await findMySqlViolations(elsewhere.query, { schema: database.name })).toEqual(EXPECTED_VIOLATIONS);
  });
});
