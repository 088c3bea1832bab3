// Set up before every test file: after each test the raw state of each lock table that it used in this process is judged,
// those of servers that it started with serve() included. No test has to remember it.

import { afterEach, expect } from "vitest";
import { Table } from "../../src/core/table.ts";
import { tableViolations } from "./inspect-table.ts";

const used = new Set<Table>();
const { advance } = Table.prototype;

// every verb of a table lets time pass first
Table.prototype.advance = function (now, micros) {
  used.add(this);
  advance.call(this, now, micros);
};

afterEach(() => {
  const tables = usedTables();
  used.clear();
  expect(tables.flatMap(tableViolations), "the state of a lock table").toEqual([]);
});

/** The lock tables that the running test has used. */
export function usedTables(): Table[] {
  return [...used];
}

/** For a test that plants a fault: this table is not judged at its end. */
export function excuse(table: Table): void {
  used.delete(table);
}

/** What is wrong with the lock tables that the running test has used: an inspector of stores in this process. */
export async function inspectTables(): Promise<string[]> {
  return usedTables().flatMap(tableViolations);
}
