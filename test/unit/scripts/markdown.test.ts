// The checks of the Markdown files find the faults they exist for, and name the place.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { findApiFaults } from "../../../scripts/check/api-page.ts";
import { brokenLinks, unlistedPages } from "../../../scripts/check/doc-links.ts";
import type { Page } from "../../../scripts/check/markdown.ts";
import { findAnchors, parsePage } from "../../../scripts/check/markdown.ts";
import { findProgramFaults, findSnippetFaults } from "../../../scripts/check/snippets.ts";

function makePage(...lines: readonly string[]): Page {
  return { path: "docs/page.md", text: lines.join("\n") };
}

const TS_FENCE = "```ts";
const FENCE_END = "```";

test("code blocks have their language, their line and the declarations given above them", () => {
  const { blocks, prose } = parsePage(
    makePage(
      "# Page",
      TS_FENCE,
      "a();",
      "",
      "b();",
      FENCE_END,
      "<!-- given",
      "declare const c: number;",
      "-->",
      "text",
      "~~~sh",
      "ls",
      "~~~",
    ),
  );
  expect(blocks).toEqual([
    { line: 3, language: "ts", code: "a();\n\nb();", given: { line: 1, code: "" }, program: null },
    { line: 12, language: "sh", code: "ls", given: { line: 7, code: "\ndeclare const c: number;\n" }, program: null },
  ]);
  expect(prose.filter((line) => line !== "")).toEqual(["# Page", "text"]);
});

test("a snippet that does not compile is reported with its page and line", () => {
  const faults = findSnippetFaults([
    makePage("Text.", "", TS_FENCE, "const one: number = 1;", "const two: string = one;", FENCE_END),
    {
      ...makePage(TS_FENCE, 'import { readFileSync } from "node:fs";', "", "readFileSync(3n);", FENCE_END),
      path: "other.md",
    },
  ]);
  expect(faults).toHaveLength(2);
  expect(faults[0]).toMatch(/^docs\/page\.md:5 Type 'number' is not assignable to type 'string'/);
  expect(faults[1]).toMatch(/^other\.md:4 No overload matches/);
});

test("snippets may await, return, import, export, and use and shadow the declarations given above them", () => {
  const header = ["<!-- given", 'import type { Stats } from "node:fs";', "declare const found: Stats;", "-->"];
  const faults = findSnippetFaults([
    makePage(
      ...header,
      TS_FENCE,
      'import { stat } from "node:fs/promises";',
      'const found = await stat("."); if (found) return;',
      FENCE_END,
    ),
    makePage(
      ...header,
      TS_FENCE,
      "found.isFile();",
      FENCE_END,
      TS_FENCE,
      "export function f(): boolean { return found.isFile(); }",
      FENCE_END,
    ),
    makePage("```sh", "const wrong: number = '';", FENCE_END),
  ]);
  expect(faults).toEqual([]);
});

test("an error in a given declaration is reported with the line of the comment", () => {
  const faults = findSnippetFaults([
    makePage("# Page", "<!-- given", "", "declare const x: Nothing;", "-->", TS_FENCE, "x;", FENCE_END),
  ]);
  expect(faults).toEqual(["docs/page.md:4 Cannot find name 'Nothing'."]);
});

test("links to missing files and headings are found", () => {
  const otherPage: Page = { path: "docs/other.md", text: "## A heading, with `code`\n## Twice\n## Twice" };
  const linking = (...targets: readonly string[]): string[] =>
    brokenLinks([makePage(...targets.map((target) => `See [it](${target}).`)), otherPage]);
  expect(linking("other.md", "other.md#a-heading-with-code", "other.md#twice-1", "../package.json")).toEqual([]);
  expect(linking("https://example.com/nothing", "../src/", "../src/index.ts#L1")).toEqual([]);
  expect(linking("missing.md")).toEqual(["docs/page.md:1 missing.md does not exist"]);
  expect(linking("other.md", "other.md#thrice")).toEqual(["docs/page.md:2 other.md#thrice has no such heading"]);
  expect(linking("../../elsewhere.md")[0]).toContain("leaves the tree");
  expect(linking("/README.md")[0]).toContain("is not relative");
  expect(linking("#page")[0]).toContain("has no such heading");
  expect(brokenLinks([makePage("`[not](a-link.md)`", TS_FENCE, "[nor](this.md)", FENCE_END)])).toEqual([]);
  expect(brokenLinks([makePage("[one]: missing.md")])).toHaveLength(1);
});

test("pages of the guide that the index does not link are found", () => {
  const index: Page = { path: "docs/README.md", text: "See [one](guide/one.md#part)." };
  const guide = (name: string): Page => ({ path: `docs/guide/${name}.md`, text: "# Page" });
  expect(unlistedPages([index, guide("one"), guide("two")])).toEqual([
    "docs/guide/two.md is not linked from docs/README.md",
  ]);
});

test("headings become anchors as on GitHub", () => {
  expect([
    ...findAnchors(makePage("# What `using(fn)` does, and why", "## [Links](x.md) too", "```", "# no", "```")),
  ]).toEqual(["what-usingfn-does-and-why", "links-too"]);
});

test("the reference names every export and each of its members, and nothing else", () => {
  const exported = [{ entry: "holdfast", name: "Lock", members: ["token", "release"] }];
  const reference = (...lines: readonly string[]): string[] =>
    findApiFaults(exported, [{ path: "docs/reference/api.md", text: lines.join("\n") }]);
  expect(reference("## `Lock`", "`token` and `release()`")).toEqual([]);
  expect(reference("## Locks")).toEqual(['"Lock" of holdfast has no heading in docs/reference/']);
  expect(reference("## `Lock`", "`token`", "## Next", "`release()`")).toEqual([
    "docs/reference/api.md:1 says nothing of Lock.release",
  ]);
  expect(reference("## `Lock`", "token, release", "### `Gone`")).toEqual([
    "docs/reference/api.md:3 is about Gone, which nothing exports",
  ]);
});

test("a block that shows a program is its file, to the letter", () => {
  const path = "examples/semaphore.ts";
  const page = (code: string): Page => ({
    path: "a.md",
    text: `<!-- program ${path} -->\n\n\`\`\`ts\n${code}\`\`\`\n`,
  });
  const text = readFileSync(path, "utf8");
  expect(findProgramFaults([page(text)])).toEqual([]);
  expect(findProgramFaults([page(`${text}// more\n`)])).toEqual([`a.md:4 differs from ${path}`]);
  expect(findProgramFaults([{ path: "a.md", text: page(text).text.replace("semaphore", "gone") }])).toHaveLength(1);
});
