import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { mysqlMigration } from "../../../../src/drivers/sql/mysql/driver.ts";
import { REVISION, renderProcedures } from "../../../../src/drivers/sql/mysql/migration.ts";

const LOCATION = { database: "app", prefix: "holdfast" };

test("procedures change with their revision only: a database with the same revision keeps its procedures", () => {
  const text = renderProcedures(LOCATION).join("\n");
  const digest = createHash("sha256").update(text).digest("hex").slice(0, 16);
  // published with another digest: raise REVISION
  expect([REVISION, digest]).toEqual([20, "5e3a2abc28462b41"]);
});

test("the migration expands every name, and quotes those of the database", () => {
  const text = mysqlMigration({ database: "my `app`", prefix: "pre" });
  expect(text).not.toMatch(/\{[a-z_]+\}/);
  expect(text).toContain("`my ``app```.`pre_4_claims`");
});
