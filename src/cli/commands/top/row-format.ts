/** The cells of `holdfast top`, for its screen and for its plain table. */

import type { Figures, KeyRow, SortOrder } from "../../../listing/key-rows.ts";
import { formatDuration } from "../../../util/duration.ts";
import { escapeControl } from "../../output.ts";
import type { Color } from "../../terminal-table.ts";
import { truncate, truncateLabel } from "../../terminal-table.ts";

/** One column: its cells, and how they fit into their place. */
export interface RowColumn {
  readonly title: string;
  /** The width in characters, including the arrow of the sort order; null: the rest of the line. */
  readonly width: number | null;
  readonly side?: "left";
  /** The order that sorts by this column. */
  readonly order?: SortOrder;
  format(row: KeyRow): string;
  /** How cells are cut. Default: in the middle. */
  truncate?(cell: string, columns: number): string;
  color?(cell: string): Color | null;
}

const warnUnlessZero = (cell: string): Color | null => (cell === "" || cell === "0" ? null : "yellow");

export const KEY: RowColumn = {
  title: "KEY",
  width: null,
  order: "key",
  format: ({ key }) => escapeControl(key),
};

export const WAITERS: RowColumn = {
  title: "WAITERS",
  width: 8,
  side: "left",
  order: "waiters",
  format: ({ waiters }) => String(waiters),
  color: warnUnlessZero,
};

export const LONGEST: RowColumn = {
  title: "LONGEST",
  width: 8,
  side: "left",
  order: "longestWait",
  format: ({ longestWaitMs }) => formatTime(longestWaitMs),
  color: warnUnlessZero,
};

export const HELD: RowColumn = {
  title: "HELD",
  width: 6,
  side: "left",
  order: "held",
  format: ({ heldMs }) => formatTime(heldMs),
};

export const LEASE: RowColumn = {
  title: "LEASE",
  width: 7,
  side: "left",
  format: ({ holders, remainingMs }) =>
    holders.length > 0 && remainingMs === null ? "session" : formatTime(remainingMs),
};

const MODE: RowColumn = {
  title: "MODE",
  width: 9,
  format: ({ mode, permits, limit }) => (mode === "semaphore" ? `${permits}/${limit}` : mode),
};

export const HOLDER: RowColumn = {
  title: "HOLDER",
  width: null,
  format: ({ holders }) => {
    const labels = holders.map(({ label }) => escapeControl(label)).join(", ");
    return holders.length > 1 ? `${holders.length} holders: ${labels}` : labels;
  },
  truncate: (cell, columns) => (SEVERAL_HOLDERS.test(cell) ? truncate : truncateLabel)(cell, columns),
};

const SEVERAL_HOLDERS = /^\d+ holders: /;

/** All columns, in their order. */
export const ALL_COLUMNS: readonly RowColumn[] = [KEY, WAITERS, LONGEST, HELD, LEASE, MODE, HOLDER];

function formatTime(ms: number | null): string {
  return ms === null ? "" : formatDuration(ms);
}

/** "3 held, 12 waiting, longest wait 40 s" */
export function formatFigures({ held, waiting, longestWaitMs }: Figures): string {
  const longest = longestWaitMs === null ? "" : `, longest wait ${formatDuration(longestWaitMs)}`;
  return `${held} held, ${waiting} waiting${longest}`;
}

/** Why a list has no rows. */
export function describeEmpty(prefix: string): string {
  return prefix === "" ? "no locks" : `no locks on keys that begin with "${escapeControl(prefix)}"`;
}

/** "showing the first 2,000 claims" */
export function describeLimit(maxClaims: number): string {
  return `showing the first ${maxClaims.toLocaleString("en-US")} claims`;
}
