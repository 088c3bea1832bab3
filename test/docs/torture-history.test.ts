// The tables of docs/reference/torture-history.md against the types of the history and of the summary.

import { readFileSync } from "node:fs";
import ts from "typescript";
import { expect, test } from "vitest";
import { INVARIANTS } from "../../src/torture/checker.ts";
import { OPERATION_KINDS } from "../../src/torture/history.ts";

const PAGE = readFileSync("docs/reference/torture-history.md", "utf8");
const HISTORY = "src/torture/history.ts";
const CHECKER = "src/torture/checker.ts";
const SUMMARY = "src/torture/report/summary.ts";

const program = ts.createProgram([HISTORY, CHECKER, SUMMARY], {
  ...{ strict: true, noEmit: true, allowImportingTsExtensions: true, types: [] },
  ...{
    target: ts.ScriptTarget.ESNext,
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
  },
});
const checker = program.getTypeChecker();

function typeOf(path: string, name: string): ts.Type {
  const file = program.getSourceFile(path) as ts.SourceFile;
  const exported = checker.getExportsOfModule(checker.getSymbolAtLocation(file) as ts.Symbol);
  return checker.getDeclaredTypeOfSymbol(exported.find((symbol) => symbol.name === name) as ts.Symbol);
}

function fieldsOf(type: ts.Type): string[] {
  return checker.getPropertiesOfType(type).map(({ name }) => name);
}

/** The names in code style in a cell. */
function namesIn(cell: string | undefined): string[] {
  return [...(cell ?? "").matchAll(/`(\w+)`/g)].map(([, name]) => name as string);
}

/** The cells of the rows of the table under a heading. */
function rowsUnder(heading: string): string[][] {
  const section = PAGE.split(`${heading}\n`)[1]?.split(/\n##+ /)[0] ?? "";
  const lines = section.split("\n").filter((line) => line.startsWith("| "));
  return lines.slice(1).map((line) => line.split(/(?<!\\)\|/).slice(1, -1));
}

function firstColumn(heading: string): string[] {
  return rowsUnder(heading).flatMap(([cell]) => namesIn(cell));
}

const events = (typeOf(HISTORY, "HistoryEvent") as ts.UnionType).types.map((type) => {
  const event = checker.getTypeOfSymbol(checker.getPropertyOfType(type, "event") as ts.Symbol);
  return { names: event.isUnion() ? event.types : [event], fields: fieldsOf(type).filter((name) => name !== "event") };
});

test("every event has a row with all its fields, and no other", () => {
  const documented = rowsUnder("### Events").map(([event, fields]) => [namesIn(event)[0], namesIn(fields).toSorted()]);
  const declared = events.flatMap(({ names, fields }) =>
    names.map((name) => [(name as ts.StringLiteralType).value, fields.toSorted()]),
  );
  expect(documented.toSorted()).toEqual(declared.toSorted());
});

test("every field is described once", () => {
  const declared = new Set(["event", ...events.flatMap(({ fields }) => fields)]);
  expect(firstColumn("### Fields").toSorted()).toEqual([...declared].toSorted());
});

test("summary.json: every field of the result, its violations and its figures is described once", () => {
  expect(firstColumn("## `summary.json`").toSorted()).toEqual(fieldsOf(typeOf(SUMMARY, "Summary")).toSorted());
  expect(firstColumn("### Violations").toSorted()).toEqual(fieldsOf(typeOf(CHECKER, "Violation")).toSorted());
  expect(firstColumn("### Figures").toSorted()).toEqual(fieldsOf(typeOf(CHECKER, "Figures")).toSorted());
});

test("kinds of operations and invariants are all named", () => {
  const rowOf = (heading: string, name: string): string[] => {
    const row = rowsUnder(heading).find(([cell]) => namesIn(cell).includes(name));
    return namesIn(row?.at(-1));
  };
  expect(rowOf("### Fields", "kind")).toEqual([...OPERATION_KINDS]);
  expect(rowOf("### Violations", "invariant")).toEqual([...INVARIANTS]);
});
