/** What `holdfast top` prints without a screen: a table, or one JSON object. */

import type { Snapshot } from "../../../listing/key-rows.ts";
import { sortRows } from "../../../listing/key-rows.ts";
import { escapeControl } from "../../output.ts";
import type { Terminal } from "../../terminal-table.ts";
import { renderTable } from "../../terminal-table.ts";
import { ALL_COLUMNS, describeEmpty, formatFigures, HOLDER, KEY } from "./row-format.ts";
import { INITIAL_VIEW } from "./view-state.ts";

/** What was read, and from where. */
export interface Reading {
  readonly storeName: string;
  readonly prefix: string;
  readonly snapshot: Snapshot;
}

/** The least width of a key and of a holder on a narrow terminal. */
const MIN_TEXT_COLUMNS = 12;

/** The figures, and a table of the keys with most waiters first. */
export function formatReading({ storeName, prefix, snapshot }: Reading, terminal: Terminal): string[] {
  const { figures, rows } = snapshot;
  const store = escapeControl(storeName);
  if (rows.length === 0) return [`${store}: ${describeEmpty(prefix)}`];
  const columns = ALL_COLUMNS.map((column) => ({
    ...column,
    ...(column.width !== null && { minWidth: column.width }),
    ...((column === KEY || column === HOLDER) && { truncateTo: MIN_TEXT_COLUMNS }),
  }));
  const sorted = sortRows(rows, INITIAL_VIEW.order, INITIAL_VIEW.isReversed);
  const cells = sorted.map((row) => ALL_COLUMNS.map((column) => column.format(row)));
  return [`${store}: ${formatFigures(figures)}`, "", ...renderTable(columns, cells, terminal)];
}

/** The same as one object for --json. */
export function toJsonReading({ storeName, prefix, snapshot }: Reading, at: Date): object {
  const { figures, rows, isComplete } = snapshot;
  const sorted = sortRows(rows, INITIAL_VIEW.order, INITIAL_VIEW.isReversed);
  return { store: storeName, prefix, at: at.toISOString(), ...figures, complete: isComplete, rows: sorted };
}
