/** The screen of `holdfast top` as lines: a pure function of what is known, what the user has chosen, and the size. */

import stringWidth from "string-width";
import type { KeyRow, Snapshot } from "../../../listing/key-rows.ts";
import { filterRows, sortRows } from "../../../listing/key-rows.ts";
import { formatDuration } from "../../../util/duration.ts";
import { escapeControl } from "../../output.ts";
import type { Color, Terminal } from "../../terminal-table.ts";
import { colorize, padText, truncate, truncateMiddle } from "../../terminal-table.ts";
import type { PlacedColumn } from "./layout.ts";
import { placeColumns, renderCells } from "./layout.ts";
import type { RowColumn } from "./row-format.ts";
import { describeEmpty, describeLimit, formatFigures } from "./row-format.ts";
import type { Extent, ViewState } from "./view-state.ts";
import { clampOffset } from "./view-state.ts";

/** The size of the terminal. */
export interface Size {
  readonly columns: number;
  readonly lines: number;
}

/** What is known of the store. */
export interface StoreState {
  readonly name: string;
  readonly prefix: string;
  /** The most claims that a list has. */
  readonly maxClaims: number;
  /** null: no list has been read yet. */
  readonly snapshot: Snapshot | null;
  /** The age of the snapshot. */
  readonly ageMs: number;
  /** Why the last list could not be read; null: it could. */
  readonly failure: string | null;
  /** The time from one list to the next. */
  readonly intervalMs: number;
}

const MIN_SIZE: Size = { columns: 40, lines: 8 };

/** The title, the figures and the notice above the table; the names of its columns; the keys below it. */
const FIXED_LINES = 5;

/** The rows to show, in their order. */
export function selectRows({ snapshot }: Pick<StoreState, "snapshot">, view: ViewState): readonly KeyRow[] {
  return snapshot === null ? [] : sortRows(filterRows(snapshot.rows, view.filter), view.order, view.isReversed);
}

/** How many of so many rows fit. */
export function extentOf(rowCount: number, { lines }: Size): Extent {
  return { rowCount, pageRows: Math.max(lines - FIXED_LINES, 1) };
}

/** As many lines as the terminal has. None fills the last column, where terminals differ in what follows. */
export function renderScreen(state: StoreState, view: ViewState, size: Size, hasColors: boolean): string[] {
  const width = Math.max(size.columns - 1, 1);
  const lines = renderLines(state, view, size, { columns: width, hasColors });
  return Array.from({ length: size.lines }, (_, index) => lines[index] ?? "");
}

function renderLines(state: StoreState, view: ViewState, size: Size, terminal: Terminal): readonly string[] {
  const width = terminal.columns as number;
  if (size.columns < MIN_SIZE.columns || size.lines < MIN_SIZE.lines)
    return ["the terminal is too small:", `${MIN_SIZE.columns}x${MIN_SIZE.lines} at least`].map((line) =>
      truncate(line, width),
    );
  const title = renderTitle(state, terminal);
  if (view.isHelpShown) return [title, ...HELP.map((line) => truncate(line, width))];
  const rows = selectRows(state, view);
  const extent = extentOf(rows.length, size);
  const { offset } = clampOffset(view, extent);
  const shown = rows.slice(offset, offset + extent.pageRows);
  const places = placeColumns(width);
  const body =
    rows.length === 0
      ? [truncate(describeNoRows(state, view), width)]
      : shown.map((row) =>
          renderCells(
            places,
            places.map(({ column }) => column.format(row)),
            terminal,
          ),
        );
  const blanks = Array.from({ length: extent.pageRows - body.length }, () => "");
  const position = `${offset + 1}-${offset + shown.length} of ${rows.length}`;
  return [
    title,
    truncate(state.snapshot === null ? "" : formatFigures(state.snapshot.figures), width),
    renderNotice(state, view, terminal),
    colorize(renderColumnTitles(places, view), "inverse", terminal),
    ...body,
    ...blanks,
    renderFooter(view, rows.length === 0 ? "" : position, width),
  ];
}

function renderTitle({ name, prefix, intervalMs }: StoreState, terminal: Terminal): string {
  const width = terminal.columns as number;
  const right = `every ${formatDuration(intervalMs)}`;
  const keys = prefix === "" ? "" : `  ${escapeControl(prefix)}*`;
  const left = truncateMiddle(`holdfast top  ${escapeControl(name)}${keys}`, width - right.length - 2);
  return colorize(joinEnds(left, right, width), "bold", terminal);
}

function describeNoRows({ snapshot, prefix }: StoreState, { filter }: ViewState): string {
  if (snapshot === null) return "loading";
  return snapshot.rows.length > 0 ? `no row contains "${escapeControl(filter)}"` : describeEmpty(prefix);
}

/** What the user must know of the rows: their age, and whether they are all. */
function renderNotice(state: StoreState, view: ViewState, terminal: Terminal): string {
  const { failure, snapshot } = state;
  const age = `rows ${formatDuration(state.ageMs)} old`;
  const parts: string[] = [];
  let color: Color = "yellow";
  if (failure !== null) {
    color = "red";
    // its name is in the first line
    const reason = failure.startsWith(state.name) ? `the store${failure.slice(state.name.length)}` : failure;
    parts.push(escapeControl(reason), `${age}, trying again`);
  } else if (view.isPaused) {
    parts.push("paused", age);
  } else if (snapshot !== null && state.ageMs > lateAfterMs(state)) {
    parts.push("waiting for the store", age);
  }
  if (snapshot?.isComplete === false) parts.push(describeLimit(state.maxClaims));
  if (parts.length === 0) return "";
  return colorize(shortenFirst(parts, terminal.columns as number), color, terminal);
}

const LATE_MS = 2_000;

/** Until then the next list is not late. */
function lateAfterMs({ intervalMs }: StoreState): number {
  return intervalMs + LATE_MS;
}

/** The parts in a sentence. The first one, which may contain a long name, is cut if they do not fit. */
function shortenFirst([first = "", ...others]: readonly string[], width: number): string {
  const rest = others.map((part) => `; ${part}`).join("");
  const room = width - stringWidth(rest);
  return truncate(`${truncateMiddle(first, Math.max(room, MIN_NOTICE_COLUMNS))}${rest}`, width);
}

const MIN_NOTICE_COLUMNS = 12;

function renderColumnTitles(places: readonly PlacedColumn[], view: ViewState): string {
  const titles = places.map(({ column }) => `${column.title}${signOf(column, view)}`);
  const plain = places.map(({ column, ...place }) => ({ ...place, column: { ...column, color: () => null } }));
  return renderCells(plain, titles, { columns: null, hasColors: false });
}

/** The sign of the order by which the rows are sorted. */
function signOf({ order }: RowColumn, view: ViewState): string {
  if (order !== view.order) return "";
  return (order === "key") === view.isReversed ? "↓" : "↑";
}

const FOOTER_KEYS = ["q quit", "s sort", "/ filter", "? help", "r reverse", "space pause"];

function renderFooter(view: ViewState, position: string, width: number): string {
  const room = width - position.length - 2;
  return joinEnds(describeFilter(view, room) ?? chooseKeys(room), position, width);
}

/** null: there is no filter. */
function describeFilter({ filter, isEditingFilter }: ViewState, room: number): string | null {
  if (!isEditingFilter && filter === "") return null;
  const hint = isEditingFilter ? "  Enter keeps it, Escape clears it" : "  Escape clears it";
  const isHintShown = room >= hint.length + MIN_FILTER_COLUMNS;
  const filterColumns = isHintShown ? room - hint.length : room;
  const text = truncateMiddle(`filter: ${escapeControl(filter)}${isEditingFilter ? "_" : ""}`, filterColumns);
  return isHintShown ? text + hint : text;
}

const MIN_FILTER_COLUMNS = 24;

/** As many of the keys as fit. */
function chooseKeys(room: number): string {
  let text = "";
  for (const part of FOOTER_KEYS) {
    const longer = text === "" ? part : `${text}  ${part}`;
    if (longer.length > room) break;
    text = longer;
  }
  return text;
}

function joinEnds(left: string, right: string, width: number): string {
  return right === "" ? left : `${padText(left, width - right.length)}${right}`;
}

const HELP: readonly string[] = [
  "q, Ctrl-C     leave",
  "s             sort by the next column",
  "r             reverse the order",
  "/             filter by key or holder",
  "Enter         keep the filter",
  "Escape        clear the filter",
  "arrows, j, k  scroll by a row",
  "PgUp, PgDn    scroll by a page",
  "Home, End     first row, last row",
  "space         pause, continue",
  "any key       close this help",
];
