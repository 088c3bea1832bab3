import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { postgresMigration } from "../../../../src/drivers/sql/postgres/driver.ts";
import { REVISION, renderMigration } from "../../../../src/drivers/sql/postgres/migration.ts";

const LOCATION = { schema: "holdfast", prefix: "holdfast" };

test("functions change with their revision only: a database with the same revision keeps its functions", () => {
  const digest = createHash("sha256").update(renderMigration(LOCATION)).digest("hex").slice(0, 16);
  // published with another digest: raise REVISION
  expect([REVISION, digest]).toEqual([12, "2bd133df4ddf3153"]);
});

test("the migration is one transaction, expands every name, and names the grants as comments", () => {
  const text = postgresMigration({ schema: 'my "schema"', prefix: "pre" });
  expect(text).toMatch(/^begin;\nset transaction isolation level read committed;/);
  expect(text).not.toMatch(/\{[a-z_]+\}/);
  expect(text).toContain('"my ""schema"""."pre_1_claims"');
  expect(
    text
      .slice(text.indexOf("commit;"))
      .trim()
      .split("\n")
      .slice(1)
      .every((line) => line.startsWith("-- ")),
  ).toBe(true);
});
