/** `holdfast show KEY`: who holds it, who waits, and what happened to it last. */

import { shownDuration } from "../duration.ts";
import { checkedKey } from "../keys.ts";
import type { ToldEvent } from "../protocol/tools.ts";
import type { ClaimView } from "../spi/driver.ts";
import { CommandError, commandError } from "./failure.ts";
import { eventRecord, eventTable } from "./happened.ts";
import { aheadOf, leaseOf, modeSuffix, recordOf, sinceOf } from "./ls.ts";
import { jsonLine, print, quoted, visible } from "./output.ts";
import type { Column, Screen } from "./screen.ts";
import { cutMiddle, ownScreen, paint, table } from "./screen.ts";
import type { Store } from "./store.ts";
import { openStore } from "./store.ts";
import { claimsOf, toolsOf } from "./tools.ts";

/** Flags of `show`. */
export interface ShowFlags {
  readonly url?: string;
  readonly json?: boolean;
  readonly events?: string;
}

const EVENTS = 10;
/** A server tells no more at a time. */
const MOST_EVENTS = 100;

/** What is known of a key. */
export interface Shown {
  readonly key: string;
  /** Its line from the front. */
  readonly line: readonly ClaimView[];
  /** What happened to it last, oldest first; a string: why that is not known. */
  readonly events: readonly ToldEvent[] | string;
  /** So many of them are printed. Default: all. */
  readonly most?: number;
}

/** Shows one key. @throws CommandError */
export async function show(key: string, flags: ShowFlags): Promise<number> {
  checkedKey(key);
  const most = mostFrom(flags.events);
  const store = await openStore(flags.url);
  try {
    const views = await claimsOf(store, key);
    const line = views.filter(({ holds }) => holds.some((hold) => hold.key === key));
    const events = await eventsOf(store, key, line.length > 0);
    const shown: Shown = { key, line, events, most };
    if (flags.json === true) print(jsonLine(shownRecord(shown)));
    else for (const text of shownLines(shown, ownScreen())) print(text);
    return 0;
  } finally {
    await store.locks.close();
  }
}

function mostFrom(text: string | undefined): number {
  if (text === undefined) return EVENTS;
  if (/^\d{1,3}$/.test(text) && Number(text) <= MOST_EVENTS) return Number(text);
  throw new CommandError("usage", `--events must be a whole number up to ${MOST_EVENTS}`);
}

/** isSeen: something of the key is there to be shown without them. */
async function eventsOf(store: Store, key: string, isSeen: boolean): Promise<readonly ToldEvent[] | string> {
  const tools = await toolsOf(store);
  if (tools === null) return `${store.name} keeps no events`;
  try {
    return await tools.history(key, MOST_EVENTS);
  } catch (error) {
    // an older server, or a credential that may not: the rest is worth showing all the same, if there is any: who may not
    // see whether a key is free must not be told that it is
    const { code } = error as { readonly code?: unknown };
    if (code === "UNSUPPORTED" || (code === "DRIVER_FATAL" && isSeen)) return (error as Error).message;
    throw commandError(error, store.name);
  } finally {
    tools.close();
  }
}

/** What was asked of a holder that keeps its place until it has let go; by what the server's events call it. */
const ASKED: Readonly<Record<string, string>> = { revoked: "revoked", outstayed: "maxHold" };

/** Why a holder has lost the lock although it has not let go yet; undefined: it has it, as far as is remembered. */
function lossOf({ tag, answer }: ClaimView, events: Shown["events"]): string | undefined {
  if (typeof events === "string" || answer.state !== "held") return undefined;
  const asked = events.find((event) => event.tag === tag && Object.hasOwn(ASKED, event.kind));
  return asked && ASKED[asked.kind];
}

function printed({ events, most }: Shown): Shown["events"] {
  if (typeof events === "string" || most === undefined) return events;
  return events.slice(Math.max(0, events.length - most));
}

/** Below so many columns tags are left to --json. */
const WIDE_COLUMNS = 100;

const TAG: Column = { head: "TAG", least: 10 };

function places(isWide: boolean): Column[] {
  return [
    { head: "#", side: "left", least: 2 },
    { head: "STATE", least: 7, colour: (cell) => (cell.startsWith("held") ? "green" : "yellow") },
    { head: "SINCE", least: 6, side: "left" },
    { head: "LEASE", least: 7, side: "left" },
    { head: "TOKEN", least: 16 },
    ...(isWide ? [TAG] : []),
    { head: "HOLDER", cutTo: 12 },
  ];
}

/** As people read it. */
export function shownLines(shown: Shown, screen: Screen): string[] {
  const { key, line } = shown;
  const events = printed(shown);
  const inner = narrowed(screen);
  const isWide = inner.columns === null || inner.columns >= WIDE_COLUMNS;
  const rows = line.map((view, at) => {
    const { answer, tag, label, holds } = view;
    const hold = holds.find((one) => one.key === key) ?? holds[0];
    const others = holds.length === 1 ? "" : ` (and ${holds.length - 1} more keys)`;
    return [
      String(at + 1),
      `${lossOf(view, shown.events) ?? answer.state}${modeSuffix(hold)}`,
      shownDuration(sinceOf(view)),
      leaseOf(view),
      answer.state === "held" ? String(answer.token) : "",
      ...(isWide ? [tag] : []),
      visible(label) + others,
    ];
  });
  const told =
    typeof events === "string"
      ? [`events: ${events}`]
      : events.length === 0
        ? ["events: none that is remembered"]
        : [paint("last events", "bold", screen), ...indented(eventTable(events, inner, isWide))];
  const head = [paint(cutMiddle(visible(key), screen.columns ?? Number.POSITIVE_INFINITY), "bold", screen)];
  const standing = rows.length === 0 ? [] : ["", ...indented(table(places(isWide), rows, inner))];
  return [...head, ...summary(shown), ...runs(line), ...standing, "", ...told];
}

function summary({ line, events }: Shown): string[] {
  const held = line.filter(({ answer }) => answer.state === "held");
  const [first] = held;
  const waiting = line.length - held.length;
  const waits = waiting === 0 ? "nobody waits" : `${waiting} ${waiting === 1 ? "waits" : "wait"}`;
  if (first === undefined) return [waiting === 0 ? "free: nobody holds it, nobody waits" : `held by nobody, ${waits}`];
  const since = shownDuration(sinceOf(first));
  if (held.length > 1) return [`held by ${held.length} together, ${waits}`];
  const loss = lossOf(first, events);
  const still = loss === undefined ? "" : ` (${loss}, but not let go yet)`;
  return [`held by ${visible(first.label)} for ${since}${still}, ${waits}`];
}

/** Token runs: a holder that passes the lock on in its own process uses them up one by one. */
function runs(line: readonly ClaimView[]): string[] {
  const longest = line.filter(({ answer }) => answer.state === "held" && answer.tokens > 1);
  return longest.map(({ answer }) => {
    if (answer.state !== "held") return "";
    const last = answer.token + BigInt(answer.tokens) - 1n;
    return `tokens ${answer.token} to ${last} are this holder's, one for each holder in its process`;
  });
}

function indented(lines: readonly string[]): string[] {
  return lines.map((text) => `  ${text}`);
}

function narrowed({ columns, colours }: Screen): Screen {
  return { columns: columns === null ? null : columns - 2, colours };
}

/** For --json: one object. */
function shownRecord(shown: Shown): object {
  const { key, line } = shown;
  const events = printed(shown);
  const ahead = aheadOf(line);
  const claims = line.map((view, at) => ({
    ...recordOf(view, ahead[at] as number),
    lost: lossOf(view, shown.events) ?? null,
  }));
  return {
    key,
    held: line.some(({ answer }) => answer.state === "held"),
    line: claims,
    events: typeof events === "string" ? null : events.map(eventRecord),
    ...(typeof events === "string" && { eventsMissing: events }),
  };
}

/** `"k" is held by ana with token 7`, for messages about a key. */
export function heldInWords(key: string, line: readonly ClaimView[]): string {
  const holders = line.flatMap(({ answer, label }) =>
    answer.state === "held" ? [`${visible(label)} with token ${answer.token}`] : [],
  );
  return holders.length === 0 ? `nobody holds ${quoted(key)}` : `${quoted(key)} is held by ${holders.join(" and by ")}`;
}
