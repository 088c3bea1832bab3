/** Where the columns of `holdfast top` are: their places depend on the width alone, so that no refresh moves them. */

import type { Terminal } from "../../terminal-table.ts";
import { colorize, padText, truncateMiddle } from "../../terminal-table.ts";
import type { RowColumn } from "./row-format.ts";
import { ALL_COLUMNS, HELD, HOLDER, KEY, LEASE, LONGEST, WAITERS } from "./row-format.ts";

/** A column at its place. */
export interface PlacedColumn {
  readonly column: RowColumn;
  readonly start: number;
  readonly width: number;
}

/** Figures have room on their left. */
function gapBefore(column: RowColumn): number {
  return column.side === "left" ? 1 : 2;
}

/** A narrower screen has fewer columns. */
const NARROW_LAYOUTS: readonly { readonly below: number; readonly columns: readonly RowColumn[] }[] = [
  { below: 60, columns: [KEY, WAITERS, LONGEST, HELD] },
  { below: 72, columns: [KEY, WAITERS, LONGEST, HELD, HOLDER] },
  { below: 100, columns: [KEY, WAITERS, LONGEST, HELD, LEASE, HOLDER] },
];

/** The part of the free width that the key gets, if the holder gets the rest. */
const KEY_SHARE = 0.43;

/** The columns that fit into `totalWidth`, each at its place. */
export function placeColumns(totalWidth: number): readonly PlacedColumn[] {
  const columns = NARROW_LAYOUTS.find(({ below }) => totalWidth < below)?.columns ?? ALL_COLUMNS;
  const fixedWidth = columns.slice(1).reduce((sum, column) => sum + gapBefore(column) + (column.width ?? 0), 0);
  const free = Math.max(totalWidth - fixedWidth, 0);
  const keyWidth = columns.includes(HOLDER) ? Math.floor(free * KEY_SHARE) : free;
  const widthOf = (column: RowColumn): number => column.width ?? (column === KEY ? keyWidth : free - keyWidth);
  let end = 0;
  return columns.map((column, index) => {
    const start = index === 0 ? 0 : end + gapBefore(column);
    const width = widthOf(column);
    end = start + width;
    return { column, start, width };
  });
}

/**
 * The cells at their places. Terminals disagree about the width of some characters (emoji, and what is wide only in
 * East Asian fonts): in a line with such characters each cell is placed by the number of its column.
 */
export function renderCells(places: readonly PlacedColumn[], cells: readonly string[], terminal: Terminal): string {
  const isAscii = cells.every((cell) => !/[^ -~]/.test(cell));
  const rendered = places.map(({ column, start, width }, index) => {
    const cell = cells[index] as string;
    const fitted = padText((column.truncate ?? truncateMiddle)(cell, width), width, column.side ?? "right");
    const color = column.color?.(cell) ?? null;
    const gap = index === 0 ? "" : " ".repeat(gapBefore(column)) + (isAscii ? "" : moveToColumn(start));
    return gap + (color === null ? fitted : colorize(fitted, color, terminal));
  });
  return rendered.join("");
}

/** Sets the column of the cursor; a terminal counts from 1. */
function moveToColumn(start: number): string {
  return `\u001b[${start + 1}G`;
}
