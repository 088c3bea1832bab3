/** What the page says of one violation: its operations, the faults, the events around it, and what to do. */

import type { Invariant, Violation } from "../checker.ts";
import type { FaultRecord, History, OperationRecord } from "../operations.ts";
import { beliefOf, operationId } from "../operations.ts";
import { describeEvent } from "./event-text.ts";
import type { TimedEvent } from "./events-around.ts";
import { formatDistance, formatSeconds } from "./format.ts";
import { escapeMarkup, formatTable } from "./markup.ts";
import type { DrawableHistory } from "./spans.ts";
import { listKeys } from "./spans.ts";
import { drawWindow, fitWindow } from "./window.ts";

/** What the sections of all violations share. */
export interface ViolationContext {
  readonly drawable: DrawableHistory;
  readonly byId: ReadonlyMap<string, OperationRecord>;
}

const MICROS_PER_MS = 1_000;
const LEASES_AROUND = 2;
/** A second picture shows a violation of which less than this share of the first one is to be seen. */
const CLOSE_UP_SHARE = 0.2;

const ADVICE: Readonly<Record<Invariant, string>> = {
  exclusion:
    "Protect the resource itself: let it refuse a fencing token below the highest that it has seen, because a pause or a slow network can always outlast a lease.",
  tokens:
    "Look for a store that lost its counter in a crash or a fail-over: it must write each grant to its disk, or to a majority, before it answers.",
  register:
    "Tokens and grants came in different orders: a resource that compares these tokens is not protected, so do not rely on them until the cause is found.",
  release:
    "Do not take the answer of a release as a proof that the work was exclusive: compare the token where the result is written.",
  notice:
    "Let the holder look at its lock before each step (its signal, or its remaining time): its client did not report the loss.",
  progress:
    "Give every request a limit of its own, and look at the store's log at this time: after the repair a free lock was not granted.",
  remains:
    "Let every claim have a lease: what is left in the store without one blocks its key until an operator removes it.",
};

/** @param around the events around it */
export function formatViolation(
  violation: Violation,
  number: number,
  around: readonly TimedEvent[],
  context: ViolationContext,
): string {
  const { invariant, message, at, key, operations } = violation;
  const { drawable, byId } = context;
  const { history } = drawable;
  const records = operations.flatMap((id) => byId.get(id) ?? []);
  const where = key === null ? "" : ` of ${key}`;
  return `<section class="violation" id="violation-${number}">
<h3>${number}. ${escapeMarkup(`${invariant}${where}, at ${formatSeconds(at)}`)}</h3>
<p class="message">${escapeMarkup(message)}</p>
<p><b>What to do:</b> ${escapeMarkup(ADVICE[invariant])}</p>
${records.length === 0 ? "<p>No operation is concerned.</p>" : formatOperations(records, number, history)}
${formatFaults(at, history)}
${drawPictures(violation, number, records, drawable)}
${formatEvents(violation, number, around)}
</section>
`;
}

function formatOperations(records: readonly OperationRecord[], number: number, history: History): string {
  const rows = records.map((record) => {
    const worker = history.workers.get(record.worker);
    const belief = beliefOf(record, history.workers);
    const tokens = record.tokens === null ? ["none"] : [...record.tokens].map(([key, token]) => `${key}: ${token}`);
    return [
      operationId(record),
      `worker ${record.worker}, process ${worker?.pid ?? "unknown"}`,
      `${record.kind} of ${record.keys.join(", ")}${describePermits(record)}`,
      tokens.join(", "),
      formatSeconds(record.invokedAt),
      formatOptional(record.grantedAt),
      belief === null ? "never" : `${formatSeconds(belief.from)} to ${formatSeconds(belief.to)}`,
      describeEnd(record, worker?.endedAt ?? null),
    ];
  });
  return formatTable({
    caption: `The operations of violation ${number}`,
    head: ["Operation", "Process", "Lock", "Token", "Asked at", "Granted at", "Certainly held", "End"],
    rows,
  });
}

function describePermits({ permits, limit }: OperationRecord): string {
  if (permits === limit) return "";
  return limit === null ? ", shared" : `, ${permits} of ${limit} permits`;
}

function describeEnd(record: OperationRecord, processEndedAt: number | null): string {
  const { lostAt, releasedAt, wasHeld } = record;
  const parts: string[] = [];
  if (lostAt !== null) parts.push(`told lost at ${formatSeconds(lostAt)}`);
  if (releasedAt !== null) {
    const answer = wasHeld === null ? "failed" : wasHeld ? "was held" : "was not held";
    parts.push(`released at ${formatSeconds(releasedAt)}: ${answer}`);
  } else if (processEndedAt !== null) parts.push(`its process ended at ${formatSeconds(processEndedAt)}`);
  return parts.length === 0 ? "none" : parts.join(", ");
}

function formatOptional(at: number | null): string {
  return at === null ? "never" : formatSeconds(at);
}

/** Those that were active, and those that had been shortly before. */
function formatFaults(at: number, history: History): string {
  const before = LEASES_AROUND * history.header.ttlMs * MICROS_PER_MS;
  const near = history.faults.filter(({ beganAt, endedAt }) => beganAt <= at && endedAt >= at - before);
  if (near.length === 0) return `<p>No fault was active, nor had been in the last ${LEASES_AROUND} leases.</p>`;
  const items = near.map((fault) => `<li>${escapeMarkup(describeFault(fault, at))}</li>`);
  return `<p>Faults:</p><ul>${items.join("")}</ul>`;
}

function describeFault({ fault, workers, beganAt, endedAt }: FaultRecord, at: number): string {
  const struck = workers === null ? "all workers" : `worker ${workers.join(", ")}`;
  const state = endedAt >= at ? "active" : `over ${formatDistance(at - endedAt)} before`;
  return `${fault} of ${struck}, since ${formatSeconds(beganAt)}, ${state}`;
}

function drawPictures(
  { at, key, operations }: Violation,
  number: number,
  records: readonly OperationRecord[],
  drawable: DrawableHistory,
): string {
  const { history } = drawable;
  const keys = key === null ? listKeys(history) : [key];
  const window = fitWindow(drawable, at, LEASES_AROUND * history.header.ttlMs * MICROS_PER_MS, keys);
  const { reach } = window;
  const options = { keys, concerned: operations, markAt: at };
  const title = `${formatDistance(reach)} before and after violation ${number}`;
  const wide = drawWindow(drawable, { ...options, window, title });
  const times = records.flatMap((record) => timesOf(record, history)).filter((time) => Math.abs(time - at) < reach);
  const from = Math.min(at, ...times);
  const to = Math.max(at, ...times);
  const margin = Math.max((to - from) / 4, MICROS_PER_MS);
  if (to - from + 2 * margin > 2 * reach * CLOSE_UP_SHARE) return wide;
  const close = { from: Math.max(from - margin, 0), to: to + margin };
  return (
    wide +
    drawWindow(drawable, {
      ...options,
      window: close,
      title: `The ${formatDistance(close.to - close.from)} of violation ${number}`,
    })
  );
}

function timesOf(record: OperationRecord, { workers }: History): number[] {
  const belief = beliefOf(record, workers);
  return [record.grantedAt, belief?.from, belief?.to, record.releasedAt].filter((time) => time != null);
}

function formatEvents(violation: Violation, number: number, around: readonly TimedEvent[]): string {
  const concerned = new Set(violation.operations);
  const rows = around.map((event) => [
    formatSeconds(event.at),
    `${event.at < violation.at ? "−" : "+"}${formatDistance(Math.abs(event.at - violation.at))}`,
    "op" in event ? operationId(event) : "",
    describeEvent(event),
  ]);
  return formatTable({
    caption: `The events around violation ${number}`,
    head: ["Time", "From the violation", "Operation", "Event"],
    rows,
    classOf: (index) => {
      const event = around[index];
      return event !== undefined && "op" in event && concerned.has(operationId(event)) ? "concerned" : null;
    },
  });
}
