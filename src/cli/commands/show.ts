/** `holdfast show KEY`: its holders, its waiters and its last events. */

import type { ServerEvent } from "../../protocol/admin-frames.ts";
import { toClaimInfo } from "../../spi/claim-info.ts";
import type { ClaimView } from "../../spi/driver.ts";
import { formatDuration } from "../../util/duration.ts";
import { validateKey } from "../../util/keys.ts";
import { CommandError, toCommandError } from "../errors.ts";
import type { Store } from "../open-store.ts";
import { listClaims, openAdmin, openStore } from "../open-store.ts";
import { escapeControl, formatJsonLine, printLine, quoteKey } from "../output.ts";
import type { StoreFlags } from "../store-choice.ts";
import type { Column, Terminal } from "../terminal-table.ts";
import { colorize, detectTerminal, renderTable, truncateMiddle } from "../terminal-table.ts";
import { renderEventTable, toJsonEvent } from "./event-format.ts";
import { formatLease, formatModeSuffix, sinceMs } from "./list.ts";

/** Flags of `show`. */
export interface ShowFlags extends StoreFlags {
  readonly json?: boolean;
  readonly events?: string;
}

const DEFAULT_EVENTS = 10;
/** A server sends no more at a time. */
const MAX_EVENTS = 100;

/** The state of one key. */
export interface KeyReport {
  readonly key: string;
  /** Its queue, from the front. */
  readonly queue: readonly ClaimView[];
  /** Its last events, oldest first; a string: why they are not available. */
  readonly events: readonly ServerEvent[] | string;
  /** How many of the last events are printed. Default: all. */
  readonly maxEvents?: number;
}

/** Shows one key. @throws CommandError */
export async function showCommand(key: string, flags: ShowFlags): Promise<number> {
  validateKey(key);
  const maxEvents = parseMaxEvents(flags.events);
  const store = await openStore(flags);
  try {
    const { items: views } = await listClaims(store, key);
    const queue = views.filter(({ locks }) => locks.some((spec) => spec.key === key));
    const events = await readEvents(store, key, queue.length > 0);
    const report: KeyReport = { key, queue, events, maxEvents };
    if (flags.json === true) printLine(formatJsonLine(toJsonReport(report)));
    else for (const outputLine of formatReport(report, detectTerminal())) printLine(outputLine);
    return 0;
  } finally {
    await store.close();
  }
}

function parseMaxEvents(text: string | undefined): number {
  if (text === undefined) return DEFAULT_EVENTS;
  if (/^\d{1,3}$/.test(text) && Number(text) <= MAX_EVENTS) return Number(text);
  throw new CommandError("usage", `--events must be an integer from 0 to ${MAX_EVENTS}`);
}

/** Reads the last events of a key. `hasClaims`: the key has claims, which can be shown without the events. */
async function readEvents(store: Store, key: string, hasClaims: boolean): Promise<readonly ServerEvent[] | string> {
  const admin = await openAdmin(store);
  if (admin === null) return `${store.name} keeps no events`;
  try {
    return await admin.history(key, MAX_EVENTS);
  } catch (error) {
    // An older server, or a credential without the right: show the claims without events. Without claims the refusal is
    // reported instead: "free" would tell a user without the right that the key is free.
    const { code } = error as { readonly code?: unknown };
    if (code === "LOCK_UNSUPPORTED" || (code === "LOCK_STORE_REFUSED" && hasClaims)) return (error as Error).message;
    throw toCommandError(error, store.name);
  } finally {
    admin.close();
  }
}

/** The reason of a loss by the kind of its event. After these events a holder keeps its entry until it has released. */
const LOSS_BY_EVENT: Readonly<Record<string, string>> = { revoked: "revoked", maxHoldExceeded: "maxHold" };

/** Why a holder has lost the lock, although it has not released it yet; undefined: the known events show no loss. */
function findLoss({ tag, answer }: ClaimView, events: KeyReport["events"]): string | undefined {
  if (typeof events === "string" || answer.state !== "held") return undefined;
  const lossEvent = events.find((event) => event.tag === tag && Object.hasOwn(LOSS_BY_EVENT, event.kind));
  return lossEvent && LOSS_BY_EVENT[lossEvent.kind];
}

function limitEvents({ events, maxEvents }: KeyReport): KeyReport["events"] {
  if (typeof events === "string" || maxEvents === undefined) return events;
  return events.slice(Math.max(0, events.length - maxEvents));
}

/** A narrower table has no tags; --json has them. */
const WIDE_COLUMNS = 100;

const TAG: Column = { title: "TAG", minWidth: 10 };

function queueColumns(isWide: boolean): Column[] {
  return [
    { title: "#", side: "left", minWidth: 2 },
    { title: "STATE", minWidth: 7, color: (cell) => (cell.startsWith("held") ? "green" : "yellow") },
    { title: "SINCE", minWidth: 6, side: "left" },
    { title: "LEASE", minWidth: 7, side: "left" },
    { title: "TOKEN", minWidth: 16 },
    ...(isWide ? [TAG] : []),
    { title: "HOLDER", truncateTo: 12 },
  ];
}

/** The report as lines of text. */
export function formatReport(report: KeyReport, terminal: Terminal): string[] {
  const { key, queue } = report;
  const events = limitEvents(report);
  const innerTerminal = narrowTerminal(terminal);
  const isWide = innerTerminal.columns === null || innerTerminal.columns >= WIDE_COLUMNS;
  const rows = queue.map((view, index) => {
    const { answer, tag, label, locks } = view;
    const spec = locks.find((candidate) => candidate.key === key) ?? locks[0];
    const otherKeys = locks.length === 1 ? "" : ` (and ${formatCount(locks.length - 1, "more key")})`;
    return [
      String(index + 1),
      `${findLoss(view, report.events) ?? answer.state}${formatModeSuffix(spec)}`,
      formatDuration(sinceMs(view)),
      formatLease(view),
      answer.state === "held" ? String(answer.token) : "",
      ...(isWide ? [tag] : []),
      escapeControl(label) + otherKeys,
    ];
  });
  const eventLines =
    typeof events === "string"
      ? [`events: ${events}`]
      : events.length === 0
        ? ["events: none recorded"]
        : [colorize("last events", "bold", terminal), ...indent(renderEventTable(events, innerTerminal, isWide))];
  const head = [
    colorize(truncateMiddle(escapeControl(key), terminal.columns ?? Number.POSITIVE_INFINITY), "bold", terminal),
  ];
  const queueLines = rows.length === 0 ? [] : ["", ...indent(renderTable(queueColumns(isWide), rows, innerTerminal))];
  return [...head, ...formatSummary(report), ...formatTokenRanges(queue), ...queueLines, "", ...eventLines];
}

function formatSummary({ queue, events }: KeyReport): string[] {
  const held = queue.filter(({ answer }) => answer.state === "held");
  const [first] = held;
  const waiting = queue.length - held.length;
  const waitersText = waiting === 0 ? "no waiters" : formatCount(waiting, "waiter");
  if (first === undefined) return [`${waiting === 0 ? "free" : "not held"}, ${waitersText}`];
  const heldFor = formatDuration(sinceMs(first));
  if (held.length > 1) return [`held by ${held.length} holders, ${waitersText}`];
  const loss = findLoss(first, events);
  const lossText = loss === undefined ? "" : ` (${loss}, but not released yet)`;
  return [`held by ${escapeControl(first.label)} for ${heldFor}${lossText}, ${waitersText}`];
}

/** The token ranges of holders: hand-offs within the holder's process use them up one by one. */
function formatTokenRanges(queue: readonly ClaimView[]): string[] {
  const multiToken = queue.filter(({ answer }) => answer.state === "held" && answer.tokenCount > 1);
  return multiToken.map(({ answer }) => {
    if (answer.state !== "held") return "";
    const last = answer.token + BigInt(answer.tokenCount) - 1n;
    return `tokens ${answer.token} to ${last} are reserved for hand-offs within the holder's process`;
  });
}

function formatCount(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

function indent(lines: readonly string[]): string[] {
  return lines.map((text) => `  ${text}`);
}

function narrowTerminal({ columns, hasColors }: Terminal): Terminal {
  return { columns: columns === null ? null : columns - 2, hasColors };
}

/** The report as one object for --json. */
function toJsonReport(report: KeyReport): object {
  const { key, queue } = report;
  const events = limitEvents(report);
  return {
    key,
    held: queue.some(({ answer }) => answer.state === "held"),
    queue: queue.map((view) => ({ ...toClaimInfo(view), lost: findLoss(view, report.events) ?? null })),
    events: typeof events === "string" ? null : events.map(toJsonEvent),
    ...(typeof events === "string" && { eventsMissing: events }),
  };
}

/** `"k" is held by ana with token 7`, for messages about a key. */
export function describeHolders(key: string, queue: readonly ClaimView[]): string {
  const holders = queue.flatMap(({ answer, label }) =>
    answer.state === "held" ? [`${escapeControl(label)} with token ${answer.token}`] : [],
  );
  return holders.length === 0
    ? `${quoteKey(key)} is not held`
    : `${quoteKey(key)} is held by ${holders.join(" and by ")}`;
}
