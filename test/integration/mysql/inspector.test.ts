import { expect, test } from "vitest";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";
import { findMySqlViolations } from "../../support/stores/sql-inspector.ts";
import { EXPECTED_VIOLATIONS, wrongTables } from "../../support/stores/sql-inspector-tables.ts";

const toMySqlTable = (table: string): string => table.replace("_1_", "_4_");
/** A bucket has the fields of a claim that is alone in it, with the form lone. */
const BUCKET_COLUMNS = [
  "id varbinary(64)",
  "`key` varbinary(512)",
  "form varchar(5)",
  ..."permits permit_limit ttl expires token_count used waits_from next_expiry counted created"
    .split(" ")
    .map((name) => `${name} bigint`),
];

withMariaDb((server) => {
  test("the inspector finds what is wrong with the tables", async () => {
    const database = await server().freshDatabase();
    for (const statement of wrongTables(toMySqlTable, "`key`", "varbinary(512)")) await database.query(statement);
    await database.query(
      `alter table holdfast_4_buckets ${BUCKET_COLUMNS.map((column) => `add ${column}`).join(", ")}`,
    );
    expect(await findMySqlViolations(database.query)).toEqual(EXPECTED_VIOLATIONS);
    const [claim] = await database.query(
      "select convert(id using utf8mb4) as id, bucket from holdfast_4_claims limit 1",
    );
    const setForm = (form: string) =>
      database.query(`update holdfast_4_buckets set form = '${form}', \`key\` = '' where bucket = ?`, [claim?.bucket]);
    await setForm("queue");
    expect(await findMySqlViolations(database.query)).toContain(`${claim?.id} has not the one key of its bucket`);
    await setForm("table");
    const elsewhere = await server().freshDatabase();
    expect(await findMySqlViolations(elsewhere.query, { schema: database.name })).toEqual(EXPECTED_VIOLATIONS);
  });
});
