// docs/write-a-driver.md shows code that is compiled and tested elsewhere; this test compares the two.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "vitest";

const PAGE = readFileSync("docs/write-a-driver.md", "utf8");
const CODE_BLOCKS = listBlocks("from");
const PARTS = listBlocks("part of");

test("the page shows a store, a driver, and its test", () => {
  assert.deepEqual(
    CODE_BLOCKS.map(([path]) => path),
    [
      "examples/driver/mongodb-store.ts",
      "examples/driver/document-driver.ts",
      "test/conformance/document-driver.test.ts",
    ],
  );
});

test.each(CODE_BLOCKS)("%s is on the page unchanged", (path, code) => {
  assert.equal(code, normalizeSource(readFileSync(path, "utf8")));
});

test("the page shows two parts of the driver that pushes", () => {
  assert.deepEqual(
    PARTS.map(([path]) => path),
    ["examples/driver/pushing-driver.ts", "examples/driver/pushing-driver.ts"],
  );
});

test.each(PARTS)("a part of %s is on the page unchanged", (path, code) => {
  const source = readFileSync(path, "utf8");
  for (const piece of code.split(/\n\n(?=\/\*\*)/)) assert.ok(source.includes(`\n${piece}\n`), piece);
});

function listBlocks(relation: string): (readonly [path: string, code: string])[] {
  const blocks = PAGE.matchAll(new RegExp(`^<!-- ${relation} (\\S+) -->\n\`\`\`ts\n([\\s\\S]*?)\n\`\`\`$`, "gm"));
  return [...blocks].map(([, path = "", code = ""]) => [path, code] as const);
}

/** Without the parts that apply only in this tree: imports by path, and remarks on them. */
function normalizeSource(source: string): string {
  return source
    .split("\n")
    .filter((line) => !/ from "\.\.\/\.\.\//.test(line) && !line.startsWith("// as an external driver author"))
    .join("\n")
    .trimEnd();
}
