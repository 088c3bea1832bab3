import { expect, test } from "vitest";
import type { SqlFile } from "../../../scripts/check/sql.ts";
import { findSqlFaults, renderSqlModule } from "../../../scripts/check/sql.ts";

const HEAD = "/* claim.sql — makes a claim.\n   Cost  O(1) */\n";

function file(text: string, name = "claim.sql"): SqlFile {
  return { path: `sql/${name}`, name, text: `${HEAD}${text}` };
}

/** The module's last line with the text. */
function rendered(text: string): string {
  return renderSqlModule([file(text)])
    .split("\n")
    .slice(2)
    .join("\n");
}

test("comments are dropped, also within the body of a function, and indentation stays", () => {
  const text = [
    "create function f() returns int language plpgsql as $$",
    "begin",
    "  -- the reader's part",
    "",
    "  return 1; -- one",
    "end /* of",
    "it */ $$;",
  ].join("\n");
  expect(rendered(text)).toBe(
    'export const CLAIM: string = "create function f() returns int language plpgsql as $$\\nbegin\\n  return 1;\\nend $$;";\n',
  );
});

test("literals, quoted names and instructions to the server stay as they are", () => {
  expect(rendered("select '-- it''s', \"/* a */\", `--b`, '/*' -- c'\n")).toBe(
    "export const CLAIM: string = \"select '-- it''s', \\\"/* a */\\\", `--b`, '/*'\";\n",
  );
  expect(rendered("select /*! STRAIGHT_JOIN */ 1 /*+ hint */ /* comment */ /*M! MariaDB */\n")).toBe(
    'export const CLAIM: string = "select /*! STRAIGHT_JOIN */ 1 /*+ hint */ /*M! MariaDB */";\n',
  );
});

test("of both quotes the text gets the one that needs fewer escapes, as the formatter would choose", () => {
  expect(rendered(`select "limit" from t where a = ''\n`)).toBe(
    `export const CLAIM: string = "select \\"limit\\" from t where a = ''";\n`,
  );
  expect(rendered(`select "limit", "a\\"`)).toBe(`export const CLAIM: string = 'select "limit", "a\\\\"';\n`);
});

test("a separator makes a list of statements, and files in folders have longer names", () => {
  expect(
    renderSqlModule([file("create table a (n int)\n--- next\ncreate table b (n int)\n", "tables/all-of.sql")]),
  ).toBe(
    `// Made of sql/*.sql by \`npm run statements\`: change those, not this.

export const TABLES_ALL_OF: readonly string[] = ["create table a (n int)", "create table b (n int)"];
`,
  );
});

test.each([
  ["no head", { ...file(""), text: "select 1\n" }],
  ["the head of another file", file("", "renew.sql")],
  ["a literal over several lines", file("select 'a\nb'")],
])("the check reports %s", (_, wrong) => {
  expect(findSqlFaults([wrong])).toHaveLength(1);
  expect(findSqlFaults([file("select 'a' -- '\n, 'b'")])).toEqual([]);
});
