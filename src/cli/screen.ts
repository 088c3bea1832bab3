/** Text for a terminal: how wide it is, how it is cut, padded and coloured. What stands in it was made visible() before. */

/** What is known of where the text will be read. */
export interface Screen {
  /** Columns; null: nobody cuts it (a pipe, a file). */
  readonly columns: number | null;
  readonly colours: boolean;
}

/** The screen that standard output is. NO_COLOR and TERM=dumb are obeyed; a pipe has neither colours nor an end. */
export function ownScreen(
  stdout: { readonly isTTY?: boolean; readonly columns?: number } = process.stdout,
  env: NodeJS.ProcessEnv = process.env,
): Screen {
  if (stdout.isTTY !== true) return { columns: null, colours: false };
  const colours = (env.NO_COLOR ?? "") === "" && env.TERM !== "dumb";
  return { columns: Math.max(stdout.columns ?? 80, 40), colours };
}

const COLOURS = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33 } as const;
export type Colour = keyof typeof COLOURS;

/** The text in a colour, if the screen has any. */
export function paint(text: string, colour: Colour, { colours }: Screen): string {
  return colours ? `\u001b[${COLOURS[colour]}m${text}\u001b[0m` : text;
}

const MARK = /^\p{M}$/u;
/** Characters that take two columns. */
const WIDE =
  /^[\u{1100}-\u{115f}\u{2e80}-\u{303e}\u{3041}-\u{a4cf}\u{ac00}-\u{d7a3}\u{f900}-\u{faff}\u{fe30}-\u{fe6f}\u{ff00}-\u{ff60}\u{ffe0}-\u{ffe6}\u{1f300}-\u{1f64f}\u{1f680}-\u{1faff}\u{20000}-\u{3fffd}]$/u;

/** Columns that the text takes. */
export function widthOf(text: string): number {
  let width = 0;
  for (const character of text) width += columnsOf(character);
  return width;
}

function columnsOf(character: string): number {
  if (character >= " " && character <= "~") return 1;
  return MARK.test(character) ? 0 : WIDE.test(character) ? 2 : 1;
}

/** The text in at most so many columns; what does not fit is replaced by an ellipsis. */
export function cut(text: string, columns: number): string {
  if (widthOf(text) <= columns) return text;
  let kept = "";
  let width = 1;
  for (const character of text) {
    width += columnsOf(character);
    if (width > columns) break;
    kept += character;
  }
  return `${kept}…`;
}

/** As cut(), from the middle: the ends of keys and labels tell more than what stands between. */
export function cutMiddle(text: string, columns: number): string {
  if (widthOf(text) <= columns) return text;
  const tail = Math.floor((columns - 1) / 3);
  const characters = [...text];
  let end = "";
  while (characters.length > 0) {
    const last = characters.pop() as string;
    if (widthOf(last + end) > tail) break;
    end = last + end;
  }
  return `${cut(text, columns - widthOf(end))}${end}`;
}

/**
 * As cut(), of a label: `user@host pid 4121 (program)` keeps its pid, by which the process is found, as long as there is
 * room for it. The host gives first, then the program.
 */
export function cutLabel(text: string, columns: number): string {
  if (widthOf(text) <= columns) return text;
  const [, host, pid, program] = /^(.*?)( pid \d+)(.*)$/.exec(text) ?? [];
  if (host === undefined || pid === undefined || program === undefined) return cutMiddle(text, columns);
  const room = columns - pid.length;
  if (room < 2) return cut(pid.trimStart(), columns);
  const hostColumns = Math.min(widthOf(host), room, Math.max(room - widthOf(program), LEAST_HOST));
  const left = room - hostColumns;
  return `${cutMiddle(host, hostColumns)}${pid}${left < 2 ? "" : cut(program, left)}`;
}

/** Padded to so many columns. */
export function pad(text: string, columns: number, side: "left" | "right" = "right"): string {
  const space = " ".repeat(Math.max(columns - widthOf(text), 0));
  return side === "right" ? text + space : space + text;
}

/** One column of a table. */
export interface Column {
  readonly head: string;
  /** At least so wide whatever stands in it, so that columns stay where they are from one look to the next. */
  readonly least?: number;
  /** May be cut to so many columns where the screen is narrow. Not given: never cut. */
  readonly cutTo?: number;
  readonly side?: "left" | "right";
  /** How it is cut. Default: from the middle. */
  readonly cut?: (cell: string, columns: number) => string;
  readonly colour?: (cell: string) => Colour | null;
}

const GAP = "  ";
/** Of a label's user and host this much stays as long as the program behind can be cut. */
const LEAST_HOST = 8;

/** A head and rows in columns, cut to the screen. Empty if there are no rows. */
export function table(columns: readonly Column[], rows: readonly (readonly string[])[], screen: Screen): string[] {
  if (rows.length === 0) return [];
  const widths = widthsOf(columns, rows, screen);
  const line = (cells: readonly string[], isHead: boolean): string => {
    const shown = columns.map((column, at) => {
      const width = widths[at] as number;
      const cell = (column.cut ?? cutMiddle)(cells[at] as string, width);
      const isLast = at === columns.length - 1 && column.side !== "left";
      const padded = isLast ? cell : pad(cell, width, column.side);
      const colour = isHead ? "bold" : (column.colour?.(cells[at] as string) ?? null);
      return colour === null ? padded : paint(padded, colour, screen);
    });
    return shown.join(GAP).trimEnd();
  };
  return [
    line(
      columns.map(({ head }) => head),
      true,
    ),
    ...rows.map((row) => line(row, false)),
  ];
}

/** As wide as their widest cells; if that is too wide, those that may be cut give, the widest first. */
function widthsOf(
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
  { columns: room }: Screen,
): readonly number[] {
  const widths = columns.map(({ head, least = 0 }, at) =>
    rows.reduce((most, row) => Math.max(most, widthOf(row[at] as string)), Math.max(least, head.length)),
  );
  if (room === null) return widths;
  let over = widths.reduce((sum, width) => sum + width, GAP.length * (columns.length - 1)) - room;
  while (over > 0) {
    let widest = -1;
    for (const [at, { cutTo }] of columns.entries()) {
      const width = widths[at] as number;
      if (cutTo !== undefined && width > cutTo && (widest === -1 || width > (widths[widest] as number))) widest = at;
    }
    if (widest === -1) break;
    widths[widest] = (widths[widest] as number) - 1;
    over--;
  }
  return widths;
}
