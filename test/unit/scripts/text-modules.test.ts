import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { parseSource } from "../../../scripts/check/source-tree.ts";
import { findLongLuaFunctions, findMissingHeads, findUnusedTexts } from "../../../scripts/check/text-files.ts";
import { isTextFile, readText, renderTextModule } from "../../../scripts/text-modules.ts";
import WATCHDOG from "../../../src/cli/commands/run/watchdog.sh";
import TURN from "../../../src/drivers/redis/lua/turn.lua";
import RENEW from "../../../src/drivers/sql/postgres/sql/renew.sql";

const folder = mkdtempSync(join(tmpdir(), "holdfast-texts-"));
afterAll(() => rmSync(folder, { recursive: true }));

function write(name: string, text: string): string {
  const path = join(folder, name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
  return path;
}

const readSql = (text: string): string => readText(write("claim.sql", text));

test("comments of SQL are dropped, also within the body of a function, and indentation stays", () => {
  const lines = [
    "/* claim.sql — makes a claim.",
    "   Cost  O(1) */",
    "create function f() returns int language plpgsql as $$",
    "begin",
    "  -- the reader's part",
    "",
    "  return 1; -- one",
    "end /* of",
    "it */ $$;",
  ];
  expect(readSql(lines.join("\n"))).toBe(
    "create function f() returns int language plpgsql as $$\nbegin\n  return 1;\nend $$;",
  );
});

test("literals, quoted names and instructions to the server stay as they are", () => {
  expect(readSql("select '-- it''s', \"/* a */\", `--b`, '/*' -- c'\n")).toBe(
    "select '-- it''s', \"/* a */\", `--b`, '/*'",
  );
  expect(readSql("select /*! STRAIGHT_JOIN */ 1 /*+ hint */ /* comment */ /*M! MariaDB */\n")).toBe(
    "select /*! STRAIGHT_JOIN */ 1 /*+ hint */ /*M! MariaDB */",
  );
  expect(readSql("select 'a' -- '\n, 'b'")).toBe("select 'a'\n, 'b'");
});

test("a literal over several lines, whose lines would be trimmed, is refused", () => {
  expect(() => readSql("select 'a \nb'")).toThrow("claim.sql: a literal or name goes over several lines: \"'a \\nb'\"");
});

test("a Lua script has what it includes in its place, without comments", () => {
  write(
    "lib/a.lua",
    "--[[ a.lua — first.\n     needs nothing ]]\n--- Doubles.\nlocal function twice(n)\n  return 2 * n -- n + n\nend\n\n",
  );
  const script = write(
    "b.lua",
    "--[[ b.lua — second. ]]\nlocal x = 1\n  --- include lib/a.lua\n-- the end\nreturn twice(x)\n",
  );
  const text = "local x = 1\nlocal function twice(n)\nreturn 2 * n\nend\nreturn twice(x)\n";
  expect(readText(script)).toBe(text);
  const sha = createHash("sha1").update(text).digest("hex");
  expect(renderTextModule(script)).toBe(
    `import { text as include1 } from "./lib/a.lua";
const B_TEXT = "local x = 1\\n" + include1 + "return twice(x)\\n";
const B = { sha: "${sha}", text: B_TEXT };
export { B as default, B_TEXT as text };
`,
  );
});

test("the constants of a Lua script are replaced by their values, and texts and fields stay as they are", () => {
  write(
    "lib/names.lua",
    "--[[ names.lua — names. ]]\nlocal SIZE <const> = 36 -- of the head\nlocal KIND <const> = 'k:\\n'\n",
  );
  const lines = [
    "--[[ c.lua — third. ]]",
    "--- constants lib/names.lua",
    "local FIELD <const> = '^' .. KIND .. '(.*)$'",
    "return match(x, FIELD), SIZE + 1, 'SIZE', redis.SIZE, SIZES",
  ];
  const script = write("c.lua", lines.join("\n"));
  expect(readText(script)).toBe("return match(x, '^k:\\n(.*)$'), 36 + 1, 'SIZE', redis.SIZE, SIZES");
  const including = write("d.lua", "--[[ d.lua — fourth. ]]\n--- include lib/names.lua\nreturn KIND\n");
  expect(readText(including)).toBe("return 'k:\\n'\n");
});

test("a constant without a value is refused", () => {
  const script = write("e.lua", "--[[ e.lua — fifth. ]]\nlocal FORM <const> = '^' .. KIND\n");
  expect(() => readText(script)).toThrow("e.lua: the value of FORM has a name that is no constant");
});

test("an import has the text: of a Lua script with its digest, of a shell script as it is", () => {
  const text = readText("src/drivers/redis/lua/turn.lua");
  expect(TURN).toEqual({ sha: createHash("sha1").update(text).digest("hex"), text });
  expect(RENEW).toBe(readText("src/drivers/sql/postgres/sql/renew.sql"));
  expect(RENEW).toMatch(/^create or replace function \{renew\}/);
  expect(WATCHDOG).toMatch(/^#!\/bin\/sh\n/);
  expect(["a.lua", "a.sql", "a.sh", "a.ts", "sh"].filter(isTextFile)).toEqual(["a.lua", "a.sql", "a.sh"]);
});

test("a head is missing, or is that of another file", () => {
  const wrong = [write("no-head.sql", "select 1\n"), write("other.lua", "--[[ a.lua — first. ]]\n")];
  const right = [
    write("right.sql", "/* right.sql — one. */\nselect 1\n"),
    write("right.lua", "--[[ right.lua — one. ]]\n"),
  ];
  expect(findMissingHeads([...wrong, ...right])).toEqual([
    `${wrong[1]} does not begin with "--[[ other.lua — <what it does>"`,
    `${wrong[0]} does not begin with "/* no-head.sql — <what it does>"`,
  ]);
});

test("a function of a Lua script has at most 60 lines", () => {
  const body = (lines: number): string => "  call('TIME')\n".repeat(lines);
  const path = write(
    "long.lua",
    `--[[ long.lua — a. ]]\nlocal function long()\n${body(59)}end\nlocal function short()\n${body(58)}end\n`,
  );
  expect(findLongLuaFunctions([path])).toEqual([`${path} function long: 61 lines, at most 60`]);
});

test("a text is imported, or included by one that is", () => {
  const paths = ["turn.lua", "lib/prelude.lua", "list.lua", "driver.ts"].map((name) => `src/drivers/redis/lua/${name}`);
  const source = parseSource("src/drivers/redis/driver.ts", 'import TURN from "./lua/turn.lua";');
  expect(findUnusedTexts(paths, new Map([[source.fileName, source]]))).toEqual([
    "src/drivers/redis/lua/list.lua is imported nowhere",
  ]);
});
