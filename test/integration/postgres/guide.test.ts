// A block of each page about PostgreSQL runs as its reader would run it.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { runSnippet } from "../../support/page-snippet.ts";
import type { TestDatabase } from "../../support/stores/sql-database.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const DOCUMENTED_URL = "postgres://app:secret@db.example.org/shop";

withPostgres((server) => {
  let database: TestDatabase;
  let url = "";
  beforeAll(async () => {
    database = await server().freshDatabase();
    url = `${database.url}?silenceWarnings=durability`;
    await database.query("create table invoices (id int primary key, paid boolean not null default false)");
    await database.query("insert into invoices values (42)");
    await database.query("create table report (id int primary key, body text not null)");
    await database.query("insert into report values (1, 'old')");
    await database.query(
      "create table t_bonus (id int primary key, left_count int not null, version bigint not null default 0)",
    );
    await database.query("insert into t_bonus values (1, 10)");
  });
  afterAll(() => database.drop());

  /** A pool and locks as the pages declare them. `check` is called when the block has run. */
  const given = (check: string): string => `
    import { connect } from "holdfast";
    import { Pool } from "pg";
    export const pool = new Pool({ connectionString: ${JSON.stringify(database.url)} });
    export const locks = await connect(${JSON.stringify(url)});
    export async function after() {
      const { rows } = await pool.query(${JSON.stringify(check)});
      console.log(JSON.stringify(rows[0]));
      await locks.close();
      await pool.end();
    }`;

  describe("a block of the page runs", () => {
    test("postgres", async () => {
      const result = await runSnippet({ page: "postgres", replaced: { [DOCUMENTED_URL]: url } });
      expect(result).toEqual({ code: 0, out: "", err: "" });
    });

    test.each([
      ["advisory-locks", 2, "select paid from invoices", { paid: true }],
      ["coming-from-databases", 4, "select paid from invoices", { paid: true }],
      ["fencing-your-data", 0, "select body from report", { body: "new" }],
      ["optimistic", 0, "select left_count from t_bonus", { left_count: 9 }],
    ] as const)("%s", async (page, block, check, row) => {
      await database.query("update invoices set paid = false");
      const { code, out, err } = await runSnippet({ page, block, given: given(check) });
      expect([code, err]).toEqual([0, ""]);
      expect(JSON.parse(out.trimEnd().split("\n").at(-1) as string)).toEqual(row);
    });
  });
});
