// The table of error codes, and the pages and texts that follow from it.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { ALL_ERROR_CODES, ERROR_CODES, toHttpStatus } from "../../../src/server/error-codes.ts";

const section = (page: string, title: string): string =>
  readFileSync(page, "utf8").split(`\n## ${title}\n`)[1]?.split("\n## ")[0] ?? "";
const codesIn = (cell: string): string[] => [...cell.matchAll(/`([A-Z_]+)`/g)].map(([, code]) => code as string);

test("the protocol page and the metrics have the same codes, but for three that only HTTP has", () => {
  const rows = [...section("docs/reference/protocol.md", "Errors").matchAll(/^\| (`[A-Z_]+`) \|/gm)];
  const documented = rows.flatMap(([, cell]) => codesIn(cell as string));
  expect([...documented, "FATAL", "RECLAIMING", "STORE"].sort()).toEqual(
    ALL_ERROR_CODES.filter((code) => ERROR_CODES[code].isCounted),
  );
});

test("the HTTP page lists each code with its statuses, and no other", () => {
  const rows = [...section("docs/reference/http.md", "Refusals").matchAll(/^\| ([\d, ]+) \| ([^|]*) \|/gm)];
  const documented = rows.flatMap(([, statuses, cell]) =>
    (statuses as string).split(", ").flatMap((status) => codesIn(cell as string).map((code) => `${status} ${code}`)),
  );
  const table = ALL_ERROR_CODES.flatMap((code) => {
    const { status, statusByReason = {} } = ERROR_CODES[code];
    return status === null
      ? []
      : [status, ...Object.values(statusByReason)].map((httpStatus) => `${httpStatus} ${code}`);
  });
  expect(documented.sort()).toEqual(table.sort());
});

test("a reason may have a status of its own", () => {
  expect(toHttpStatus("LIMIT", "full")).toBe(429);
  expect(toHttpStatus("LIMIT", "length")).toBe(413);
  expect(toHttpStatus("BUSY", "length")).toBe(409);
});

test("the codes are in alphabetical order, so that each is easy to find", () => {
  expect(ALL_ERROR_CODES).toEqual([...ALL_ERROR_CODES].sort());
});
