/** Events of `show` and `watch`, as text and as JSON. */

import stringWidth from "string-width";
import type { ServerEvent } from "../../protocol/admin-frames.ts";
import { escapeControl } from "../output.ts";
import type { Color, Column, Terminal } from "../terminal-table.ts";
import { colorize, padText, renderTable, truncateMiddle } from "../terminal-table.ts";

/** Kinds that the user should notice. */
const KIND_COLORS: Readonly<Record<string, Color>> = {
  granted: "green",
  reclaimed: "green",
  waiting: "yellow",
  expired: "red",
  disconnected: "red",
  revoked: "red",
  maxHoldExceeded: "red",
  removed: "red",
};

/** The width of the longest kind, "maxHoldExceeded". */
const KIND_COLUMNS = 15;

/** The time of day, with the date if it is not today. */
export function formatTime(at: number, now: number = Date.now()): string {
  const [moment, today] = [new Date(at), new Date(now)];
  const twoDigits = (value: number): string => String(value).padStart(2, "0");
  const clock = `${twoDigits(moment.getHours())}:${twoDigits(moment.getMinutes())}:${twoDigits(moment.getSeconds())}`;
  if (moment.toDateString() === today.toDateString()) return clock;
  return `${moment.getFullYear()}-${twoDigits(moment.getMonth() + 1)}-${twoDigits(moment.getDate())} ${clock}`;
}

/** The label and account of the claim, and the operator who ended it with the reason. */
export function formatHolder({ label, account, operator, reason }: ServerEvent): string {
  const accountText = account === "" ? "" : ` [${escapeControl(account)}]`;
  if (operator === undefined) return escapeControl(label) + accountText;
  const reasonText = reason === undefined || reason === "" ? "" : `: ${escapeControl(reason)}`;
  return `${escapeControl(label)}${accountText} (by ${operator === "" ? "an operator" : escapeControl(operator)}${reasonText})`;
}

const TIME: Column = { title: "TIME", minWidth: 8 };
const EVENT: Column = { title: "EVENT", minWidth: 9, color: (cell) => KIND_COLORS[cell] ?? null };
const TOKEN: Column = { title: "TOKEN", minWidth: 16 };
const TAG: Column = { title: "TAG", minWidth: 10 };
const WHO: Column = { title: "WHO", truncateTo: 16 };

/** The events of one key as a table, oldest first. `hasTags`: with the tags of the claims. */
export function renderEventTable(
  events: readonly ServerEvent[],
  terminal: Terminal,
  hasTags: boolean,
  now?: number,
): string[] {
  const rows = events.map((event) => [
    formatTime(event.at, now),
    event.kind,
    String(event.token ?? ""),
    ...(hasTags ? [event.tag] : []),
    formatHolder(event),
  ]);
  return renderTable([TIME, EVENT, TOKEN, ...(hasTags ? [TAG] : []), WHO], rows, terminal);
}

const KEY_COLUMNS = 18;

/** One event as a line without header. Events arrive one by one, so the columns have fixed widths. */
export function formatEventLine(event: ServerEvent, terminal: Terminal, now?: number): string {
  const { at, kind, keys, token } = event;
  const time = formatTime(at, now);
  const color = KIND_COLORS[kind];
  const paddedKind = padText(kind, KIND_COLUMNS);
  const details = `${token === undefined ? "" : `token ${token}  `}${formatHolder(event)}`;
  // a key wider than its column pushes the rest to the right if there is room, otherwise it is cut
  const availableColumns = (terminal.columns ?? Number.POSITIVE_INFINITY) - time.length - KIND_COLUMNS - 4;
  const key = truncateMiddle(
    keys.map(escapeControl).join(", "),
    Math.max(KEY_COLUMNS, availableColumns - stringWidth(details) - 2),
  );
  const remaining = availableColumns - Math.max(stringWidth(key), KEY_COLUMNS) - 2;
  const line = [
    time,
    color === undefined ? paddedKind : colorize(paddedKind, color, terminal),
    padText(key, KEY_COLUMNS),
  ];
  return `${line.join("  ")}  ${remaining < 2 ? "" : truncateMiddle(details, remaining)}`.trimEnd();
}

/** An event for --json. */
export function toJsonEvent({ at, kind, token, ...others }: ServerEvent): object {
  return { event: kind, at: new Date(at).toISOString(), token: token ?? null, ...others };
}
