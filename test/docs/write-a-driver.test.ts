// docs/write-a-driver.md shows code that is compiled and tested elsewhere; this test compares the two.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "vitest";

const PAGE = readFileSync("docs/write-a-driver.md", "utf8");
const CODE_BLOCKS = [...PAGE.matchAll(/^<!-- from (\S+) -->\n```ts\n([\s\S]*?)\n```$/gm)].map(
  ([, path = "", code = ""]) => [path, code] as const,
);

test("the page shows the driver and its test", () => {
  assert.deepEqual(
    CODE_BLOCKS.map(([path]) => path),
    ["examples/driver/document-driver.ts", "test/conformance/document-driver.test.ts"],
  );
});

test.each(CODE_BLOCKS)("%s is on the page unchanged", (path, code) => {
  assert.equal(code, normalizeSource(readFileSync(path, "utf8")));
});

/** Without the parts that apply only in this tree: imports by path, and remarks on them. */
function normalizeSource(source: string): string {
  return source
    .split("\n")
    .filter((line) => !/ from "\.\.\/\.\.\//.test(line) && !line.startsWith("// as an external driver author"))
    .join("\n")
    .trimEnd();
}
