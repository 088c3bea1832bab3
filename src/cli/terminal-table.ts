/**
 * Tables for a terminal: width, truncation, padding and colours. The callers pass text through escapeControl() first.
 */

import { styleText } from "node:util";
import stringWidth from "string-width";

/** The properties of the output that matter for layout. */
export interface Terminal {
  /** Width in columns; null: unlimited (a pipe, a file). */
  readonly columns: number | null;
  readonly hasColors: boolean;
}

/**
 * The terminal of standard output. NO_COLOR and TERM=dumb turn colours off; a pipe has no colours and unlimited width.
 */
export function detectTerminal(
  stdout: { readonly isTTY?: boolean; readonly columns?: number } = process.stdout,
  env: NodeJS.ProcessEnv = process.env,
): Terminal {
  if (stdout.isTTY !== true) return { columns: null, hasColors: false };
  const hasColors = (env.NO_COLOR ?? "") === "" && env.TERM !== "dumb";
  return { columns: Math.max(stdout.columns ?? 80, 40), hasColors };
}

export type Color = "bold" | "dim" | "inverse" | "red" | "green" | "yellow";

/** The text in a colour, if the terminal has colours. */
export function colorize(text: string, color: Color, { hasColors }: Terminal): string {
  return hasColors ? styleText(color, text, { validateStream: false }) : text;
}

const GRAPHEMES = new Intl.Segmenter();

/** What a terminal shows as one character each. */
function splitGraphemes(text: string): string[] {
  return Array.from(GRAPHEMES.segment(text), ({ segment }) => segment);
}

/** The first of the characters, as many as fit into `columns` columns. */
function takeColumns(characters: readonly string[], columns: number): readonly string[] {
  let width = 0;
  const end = characters.findIndex((character) => {
    width += stringWidth(character);
    return width > columns;
  });
  return end === -1 ? characters : characters.slice(0, end);
}

/** Cuts the text to at most `columns` columns, with an ellipsis at the end. */
export function truncate(text: string, columns: number): string {
  if (stringWidth(text) <= columns) return text;
  return `${takeColumns(splitGraphemes(text), columns - 1).join("")}…`;
}

/** Like truncate(), but cuts out of the middle: both ends of keys and labels say more than their middle. */
export function truncateMiddle(text: string, columns: number): string {
  if (stringWidth(text) <= columns) return text;
  const tail = takeColumns(splitGraphemes(text).reverse(), Math.floor((columns - 1) / 3));
  const end = [...tail].reverse().join("");
  return `${truncate(text, columns - stringWidth(end))}${end}`;
}

/** User and host of a label keep this width as long as the program after them can be cut. */
const MIN_HOST_COLUMNS = 8;

/**
 * Like truncate(), for a label: `user@host pid 4121 (program)` keeps the pid, which identifies the process, as long as
 * it fits. The host is cut first, then the program.
 */
export function truncateLabel(text: string, columns: number): string {
  const [, host, pid, program] = /^(.*?)( pid \d+)(.*)$/.exec(text) ?? [];
  if (host === undefined || pid === undefined || program === undefined) return truncateMiddle(text, columns);
  const minHostColumns = Math.min(MIN_HOST_COLUMNS, columns - pid.length - 1);
  const hostColumns = Math.max(columns - stringWidth(pid + program), minHostColumns);
  const shownHost = hostColumns < 1 ? "" : truncateMiddle(host, hostColumns);
  return truncate(`${shownHost}${pid}${program}`.trimStart(), columns);
}

/** Pads the text to `columns` columns. */
export function padText(text: string, columns: number, side: "left" | "right" = "right"): string {
  const space = " ".repeat(Math.max(columns - stringWidth(text), 0));
  return side === "right" ? text + space : space + text;
}

/** One column of a table. */
export interface Column {
  readonly title: string;
  /** The least width, so that columns keep their places when the command is repeated. */
  readonly minWidth?: number;
  /** Cells may be cut to this width on a narrow terminal. Absent: never cut. */
  readonly truncateTo?: number;
  readonly side?: "left" | "right";
  /** How cells are cut. Default: in the middle. */
  readonly truncate?: (cell: string, columns: number) => string;
  readonly color?: (cell: string) => Color | null;
}

const GAP = "  ";

/** A header and rows in columns, cut to the terminal. Empty if there are no rows. */
export function renderTable(
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
  terminal: Terminal,
): string[] {
  if (rows.length === 0) return [];
  const widths = computeWidths(columns, rows, terminal);
  const line = (cells: readonly string[], isHeader: boolean): string => {
    const rendered = columns.map((column, index) => {
      const width = widths[index] as number;
      const cell = (column.truncate ?? truncateMiddle)(cells[index] as string, width);
      const isLast = index === columns.length - 1 && column.side !== "left";
      const padded = isLast ? cell : padText(cell, width, column.side);
      const color = isHeader ? "bold" : (column.color?.(cells[index] as string) ?? null);
      return color === null ? padded : colorize(padded, color, terminal);
    });
    return rendered.join(GAP).trimEnd();
  };
  return [
    line(
      columns.map(({ title }) => title),
      true,
    ),
    ...rows.map((row) => line(row, false)),
  ];
}

/**
 * Each column is as wide as its widest cell. If that is too wide together, the widest column that may be cut shrinks
 * first.
 */
function computeWidths(
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
  { columns: totalColumns }: Terminal,
): readonly number[] {
  const widths = columns.map(({ title, minWidth = 0 }, index) =>
    rows.reduce(
      (maxWidth, row) => Math.max(maxWidth, stringWidth(row[index] as string)),
      Math.max(minWidth, title.length),
    ),
  );
  if (totalColumns === null) return widths;
  const widthOf = (index: number): number => widths[index] as number;
  let excess = widths.reduce((sum, width) => sum + width, GAP.length * (columns.length - 1)) - totalColumns;
  for (; excess > 0; excess--) {
    const [widest] = [...columns.keys()]
      .filter((index) => widthOf(index) > (columns[index]?.truncateTo ?? Number.POSITIVE_INFINITY))
      .sort((one, other) => widthOf(other) - widthOf(one));
    if (widest === undefined) break;
    widths[widest] = widthOf(widest) - 1;
  }
  return widths;
}
