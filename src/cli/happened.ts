/** What happened, in words for people and as objects for programs: of `show` and `watch`. */

import type { ToldEvent } from "../protocol/tools.ts";
import { visible } from "./output.ts";
import type { Colour, Column, Screen } from "./screen.ts";
import { cutMiddle, pad, paint, table, widthOf } from "./screen.ts";

/** Kinds that people should notice. */
const COLOURS: Readonly<Record<string, Colour>> = {
  granted: "green",
  reclaimed: "green",
  waiting: "yellow",
  expired: "red",
  gone: "red",
  revoked: "red",
  outstayed: "red",
  removed: "red",
};

/** The longest kind, "reclaimed" and "outstayed". */
const KIND_COLUMNS = 9;

/** A time of day; with its date, if that is not today's. */
export function timeOf(at: number, now: number = Date.now()): string {
  const [moment, today] = [new Date(at), new Date(now)];
  const two = (value: number): string => String(value).padStart(2, "0");
  const clock = `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;
  if (moment.toDateString() === today.toDateString()) return clock;
  return `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())} ${clock}`;
}

/** Whose claim it was, and who ended it and why. */
export function whoOf({ label, by, operator, reason }: ToldEvent): string {
  const account = by === "" ? "" : ` [${visible(by)}]`;
  if (operator === undefined) return visible(label) + account;
  const why = reason === undefined || reason === "" ? "" : `: ${visible(reason)}`;
  return `${visible(label)}${account} (by ${operator === "" ? "an operator" : visible(operator)}${why})`;
}

const TIME: Column = { head: "TIME", least: 8 };
const EVENT: Column = { head: "EVENT", least: KIND_COLUMNS, colour: (cell) => COLOURS[cell] ?? null };
const TOKEN: Column = { head: "TOKEN", least: 16 };
const TAG: Column = { head: "TAG", least: 10 };
const WHO: Column = { head: "WHO", cutTo: 16 };

/** Events of one key as a table, oldest first. tags: also the tags, by which claims are told apart. */
export function eventTable(events: readonly ToldEvent[], screen: Screen, tags: boolean, now?: number): string[] {
  const rows = events.map((event) => [
    timeOf(event.at, now),
    event.kind,
    String(event.token ?? ""),
    ...(tags ? [event.tag] : []),
    whoOf(event),
  ]);
  return table([TIME, EVENT, TOKEN, ...(tags ? [TAG] : []), WHO], rows, screen);
}

const KEY_COLUMNS = 24;

/** One event as a line that needs no head: rows come one by one, so no column can be as wide as its widest cell. */
export function eventLine(event: ToldEvent, screen: Screen, now?: number): string {
  const { at, kind, keys, token } = event;
  const time = timeOf(at, now);
  const colour = COLOURS[kind];
  const shown = pad(kind, KIND_COLUMNS);
  const rest = `${token === undefined ? "" : `token ${token}  `}${whoOf(event)}`;
  // a key that is too wide for its column pushes the rest to the right where there is room for it, else it is cut
  const room = (screen.columns ?? Number.POSITIVE_INFINITY) - time.length - KIND_COLUMNS - 4;
  const key = cutMiddle(keys.map(visible).join(", "), Math.max(KEY_COLUMNS, room - widthOf(rest) - 2));
  const left = room - Math.max(widthOf(key), KEY_COLUMNS) - 2;
  const line = [time, colour === undefined ? shown : paint(shown, colour, screen), pad(key, KEY_COLUMNS)];
  return `${line.join("  ")}  ${left < 2 ? "" : cutMiddle(rest, left)}`.trimEnd();
}

/** An event for --json. */
export function eventRecord({ at, kind, token, ...rest }: ToldEvent): object {
  return { event: kind, at: new Date(at).toISOString(), token: token ?? null, ...rest };
}
