// The checks of the Markdown files find what they exist for, and name the place.

import { expect, test } from "vitest";
import { apiFaults } from "../../scripts/check/api-page.ts";
import { deadLinks } from "../../scripts/check/links.ts";
import type { Page } from "../../scripts/check/markdown.ts";
import { anchorsOf, parsePage } from "../../scripts/check/markdown.ts";
import { snippetFaults } from "../../scripts/check/snippets.ts";

function page(...lines: readonly string[]): Page {
  return { path: "docs/page.md", text: lines.join("\n") };
}

const TS = "```ts";
const END = "```";

test("code blocks have their language, their line and what was given above them", () => {
  const { blocks, prose } = parsePage(
    page(
      "# Page",
      TS,
      "a();",
      "",
      "b();",
      END,
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
    { line: 3, language: "ts", code: "a();\n\nb();", given: { line: 1, code: "" } },
    { line: 12, language: "sh", code: "ls", given: { line: 7, code: "\ndeclare const c: number;\n" } },
  ]);
  expect(prose.filter((line) => line !== "")).toEqual(["# Page", "text"]);
});

test("a snippet that does not compile is named by page and line", () => {
  const faults = snippetFaults([
    page("Text.", "", TS, "const one: number = 1;", "const two: string = one;", END),
    { ...page(TS, 'import { readFileSync } from "node:fs";', "", "readFileSync(3n);", END), path: "other.md" },
  ]);
  expect(faults).toHaveLength(2);
  expect(faults[0]).toMatch(/^docs\/page\.md:5 Type 'number' is not assignable to type 'string'/);
  expect(faults[1]).toMatch(/^other\.md:4 No overload matches/);
});

test("snippets may await, return, import, export, and use and shadow what is given above them", () => {
  const given = ["<!-- given", 'import type { Stats } from "node:fs";', "declare const found: Stats;", "-->"];
  const faults = snippetFaults([
    page(
      ...given,
      TS,
      'import { stat } from "node:fs/promises";',
      'const found = await stat("."); if (found) return;',
      END,
    ),
    page(...given, TS, "found.isFile();", END, TS, "export function f(): boolean { return found.isFile(); }", END),
    page("```sh", "const wrong: number = '';", END),
  ]);
  expect(faults).toEqual([]);
});

test("a fault in what is given is named by the line of the comment", () => {
  const faults = snippetFaults([page("# Page", "<!-- given", "", "declare const x: Nothing;", "-->", TS, "x;", END)]);
  expect(faults).toEqual(["docs/page.md:4 Cannot find name 'Nothing'."]);
});

test("links to files and headings that are not there are found", () => {
  const other: Page = { path: "docs/other.md", text: "## A heading, with `code`\n## Twice\n## Twice" };
  const linking = (...targets: readonly string[]): string[] =>
    deadLinks([page(...targets.map((target) => `See [it](${target}).`)), other]);
  expect(linking("other.md", "other.md#a-heading-with-code", "other.md#twice-1", "../package.json")).toEqual([]);
  expect(linking("https://example.com/nothing", "../src/", "../src/index.ts#L1")).toEqual([]);
  expect(linking("missing.md")).toEqual(["docs/page.md:1 missing.md does not exist"]);
  expect(linking("other.md", "other.md#thrice")).toEqual(["docs/page.md:2 other.md#thrice has no such heading"]);
  expect(linking("../../elsewhere.md")[0]).toContain("leaves the tree");
  expect(linking("/README.md")[0]).toContain("is not relative");
  expect(linking("#page")[0]).toContain("has no such heading");
  expect(deadLinks([page("`[not](a-link.md)`", TS, "[nor](this.md)", END)])).toEqual([]);
  expect(deadLinks([page("[one]: missing.md")])).toHaveLength(1);
});

test("headings become anchors as on GitHub", () => {
  expect([
    ...anchorsOf(page("# What `using(fn)` does, and why", "## [Links](x.md) too", "```", "# no", "```")),
  ]).toEqual(["what-usingfn-does-and-why", "links-too"]);
});

test("the reference names every export and each of its members, and nothing else", () => {
  const exported = [{ entry: "holdfast", name: "Lock", members: ["token", "release"] }];
  const reference = (...lines: readonly string[]): string[] =>
    apiFaults(exported, [{ path: "docs/reference/api.md", text: lines.join("\n") }]);
  expect(reference("## `Lock`", "`token` and `release()`")).toEqual([]);
  expect(reference("## Locks")).toEqual(['"Lock" of holdfast has no heading in docs/reference/']);
  expect(reference("## `Lock`", "`token`", "## Next", "`release()`")).toEqual([
    "docs/reference/api.md:1 says nothing of Lock.release",
  ]);
  expect(reference("## `Lock`", "token, release", "### `Gone`")).toEqual([
    "docs/reference/api.md:3 is about Gone, which nothing exports",
  ]);
});
