// docs/write-a-driver.md shows code that is compiled and tested elsewhere; this test compares the two.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "vitest";

const PAGE = readFileSync("docs/write-a-driver.md", "utf8");
const CODE_BLOCKS = listBlocks("from");
const PARTS = listBlocks("part of");

test("the page shows a store and a driver", () => {
  assert.deepEqual(
    CODE_BLOCKS.map(([path]) => path),
    ["examples/driver/mongodb-store.ts", "examples/driver/pushing-driver.ts"],
  );
});

test.each(CODE_BLOCKS)("%s is on the page unchanged", (path, code) => {
  assert.equal(code, readFileSync(path, "utf8").trimEnd());
});

test("the page shows how the suite tests the driver", () => {
  assert.deepEqual(
    PARTS.map(([path]) => path),
    ["test/conformance/redis-pushing-driver.test.ts"],
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
