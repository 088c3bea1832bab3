// What the head of a Lua text says of the names that it shares is compared with the text.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { findUnlistedNames } from "../../../scripts/check/lua-names.ts";
import { listFiles } from "../../../scripts/list-files.ts";

const folder = mkdtempSync(join(tmpdir(), "holdfast-lua-"));
mkdirSync(join(folder, "lib"));
afterAll(() => rmSync(folder, { recursive: true }));

function write(name: string, lines: readonly string[]): string {
  const path = join(folder, name);
  writeFileSync(path, `${lines.join("\n")}\n`);
  return path;
}

const head = (needs: string, defines: string): string =>
  `--[[ x.lua — a text.\n     needs    ${needs}\n     defines  ${defines} ]]`;
const SCRIPT = write("s.lua", [
  "--[[ s.lua — a script. ]]",
  "local limit = tonumber(ARGV[1])",
  "--- include lib/a.lua",
  "--- include lib/b.lua",
  "return double(limit)",
]);
const B = [
  "--- constants a.lua",
  "local function double(n) -- n + n",
  "  local sum = add(n, n)",
  "  return { add = sum }",
  "end",
];
const writeA = (needs: string, defines: string): string =>
  write("lib/a.lua", [
    head(needs, defines),
    "local UNIT <const> = 2",
    "local function add(a, b)",
    "  for _, other in ipairs(a) do b = b + other.limit end",
    "  return a + b * UNIT + limit, 'unknown'",
    "end",
  ]);

test("lists that say what the texts use and define are accepted", () => {
  const paths = [SCRIPT, writeA("s.lua", "add"), write("lib/b.lua", [head("a.lua", "double"), ...B])];
  expect(findUnlistedNames(paths)).toEqual([]);
});

test("a name that is not listed, one that is listed and not used, and one that nothing defines are found", () => {
  const paths = [
    SCRIPT,
    writeA("nothing", "add, subtract"),
    write("lib/b.lua", [head("a.lua", "double"), ...B, "print(double)"]),
  ];
  expect(findUnlistedNames(paths)).toEqual([
    "a.lua needs s.lua: its head does not say so",
    "a.lua defines subtract, says its head: it does not",
    "b.lua uses print, which nothing defines",
  ]);
});

test("the scripts of the Redis driver", () => {
  expect(findUnlistedNames(listFiles("src"))).toEqual([]);
});
