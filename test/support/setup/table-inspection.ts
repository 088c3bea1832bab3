// Set up before every test file: after each test the raw state of each lock table that it used in this process is judged,
// those of servers that it started with serve() included. No test has to remember it.

import { afterEach, expect } from "vitest";
import { LockTable } from "../../../src/lock-table/table.ts";
import { findTableViolations } from "../stores/table-inspector.ts";

/** The document driver makes a table for each write. */
const MAX_TABLES = 100;

const usedTableSet = new Set<LockTable>();
const { advance } = LockTable.prototype;

// every method of a table that changes it lets time pass first
LockTable.prototype.advance = function (time) {
  usedTableSet.delete(this); // so that it is the newest
  usedTableSet.add(this);
  const [oldest] = usedTableSet;
  if (usedTableSet.size > MAX_TABLES) usedTableSet.delete(oldest as LockTable);
  advance.call(this, time);
};

afterEach(() => {
  const tables = takeUsedTables();
  usedTableSet.clear();
  expect(tables.flatMap(findTableViolations), "the state of a lock table").toEqual([]);
});

/** The lock tables that the running test has used. */
export function takeUsedTables(): LockTable[] {
  return [...usedTableSet];
}

/** For a test that plants a fault: this table is not judged at its end. */
export function skipInspection(table: LockTable): void {
  usedTableSet.delete(table);
}

/** What is wrong with the lock tables that the running test has used: an inspector of stores in this process. */
export async function inspectTables(): Promise<string[]> {
  return takeUsedTables().flatMap(findTableViolations);
}
