/** What tools see of a table: by key, in each line from the front, then what stands in no line. */

import type { ClaimView, ListFilter, LockSpec } from "../spi/driver.ts";
import { toAnswer } from "./answer.ts";
import type { ClaimRecord } from "./claim-record.ts";
import type { KeyQueue, QueueEntry } from "./key-queue.ts";
import type { LockTable } from "./table.ts";

/** Which claims are wanted. */
export interface ListQuery {
  readonly filter: ListFilter;
  readonly max: number;
  /** The tag of the last claim of the page before; one that nobody knows (any more) starts again. */
  readonly after?: string;
  /** May this key be shown? Of a claim only such keys are. Default: every key may. */
  readonly canSee?: (key: string) => boolean;
}

type KeyFilter = (key: string) => boolean;
type ToTag = (id: string) => string;

/** Lines or claims looked at between two pauses; tags are dearer. */
const RECORDS_PER_STEP = 1_000;
const TAGS_PER_STEP = 100;

/** A page at once. The table must have been advanced to `now`. */
export function listTable(table: LockTable, toTag: ToTag, query: ListQuery, now: number): ClaimView[] {
  const steps = listSteps(table, toTag, query);
  let step = steps.next();
  while (step.done !== true) step = steps.next();
  return step.value.map((record) => toView(table, toTag, record, now, query.canSee));
}

/**
 * The entries of a page, in steps: the table may change between them, so a claim that moves may be missed or come twice.
 * Its cost grows with the keys there are, not with their order: nothing is sorted but what is given.
 * @param knownLast the claim whose tag is query.after, if that is known; it may have gone meanwhile
 */
export function* listSteps(
  table: LockTable,
  toTag: ToTag,
  query: ListQuery,
  knownLast?: ClaimRecord,
): Generator<void, ClaimRecord[], void> {
  const { filter, max, after, canSee } = query;
  const matches: KeyFilter =
    filter.key === undefined ? (key) => key.startsWith(filter.prefix) : (key) => key === filter.key;
  const isShown: KeyFilter = (key) => matches(key) && (canSee?.(key) ?? true);
  const lastRecord = knownLast ?? (after === undefined ? null : yield* findByTag(table, toTag, after));
  const page: ClaimRecord[] = [];
  const primary = lastRecord === null ? null : primaryEntry(lastRecord, isShown);
  const next = primary === null ? null : entryAfter(table, primary);
  if (next !== null) collect(next.queue, next, isShown, max, page);
  if (filter.key !== undefined) {
    const queue = primary === null && isShown(filter.key) ? table.tokenIssuer.queues.get(filter.key) : undefined;
    if (queue !== undefined) collect(queue, queue.entries.first, isShown, max, page);
    return page;
  }
  if (lastRecord === null || primary !== null) {
    let afterKey = primary?.queue.key ?? "";
    while (page.length < max) {
      const queues = yield* firstQueues(table, afterKey, isShown, max);
      for (const queue of queues) collect(queue, queue.entries.first, isShown, max, page);
      if (queues.length < max) break;
      afterKey = (queues.at(-1) as KeyQueue).key;
    }
  }
  if (page.length < max) yield* collectUnqueued(table, primary === null ? lastRecord : null, isShown, max, page);
  return page;
}

/** A claim as tools see it; `canSee` leaves out keys. */
export function toView(
  table: LockTable,
  toTag: ToTag,
  record: ClaimRecord,
  now: number,
  canSee: KeyFilter | undefined,
): ClaimView {
  const { id, ...claim } = record.claim;
  // at least one is left: it was found by it
  const [first, ...others] = canSee === undefined ? claim.holds : claim.holds.filter(({ key }) => canSee(key));
  const holds = [first as LockSpec, ...others] as const;
  const answer = toAnswer(record, now, table.sessionMs);
  const heldAge = record.isHeld ? { heldMs: now - record.heldAt } : {};
  return { ...claim, holds, tag: toTag(id), answer, ageMs: now - record.placedAt, ...heldAge };
}

function* findByTag(table: LockTable, toTag: ToTag, tag: string): Generator<void, ClaimRecord | null, void> {
  let visited = 0;
  for (const record of table.records.walk()) {
    if (toTag(record.claim.id) === tag) return record;
    if (++visited % TAGS_PER_STEP === 0) yield;
  }
  return null;
}

/** Where a claim is listed: its first place in a line that is shown. A parked place stands in no line. */
function primaryEntry({ entries, isSuspended }: ClaimRecord, isShown: KeyFilter): QueueEntry | null {
  for (const entry of entries) if ((entry.isAdmitted || !isSuspended) && isShown(entry.queue.key)) return entry;
  return null;
}

/** The next one in its line; of a claim that has gone, the first that came after it. */
function entryAfter(table: LockTable, { queue, next, record, arrival }: QueueEntry): QueueEntry | null {
  if (isInTable(table, record)) return next;
  let entry = table.tokenIssuer.queues.get(queue.key)?.entries.first ?? null;
  while (entry !== null && entry.arrival < arrival) entry = entry.next;
  return entry;
}

function isInTable(table: LockTable, record: ClaimRecord): boolean {
  return table.records.get(record.claim.id) === record;
}

/** Adds those who are at home in this line, from that seat on. */
function collect(
  queue: KeyQueue,
  firstEntry: QueueEntry | null,
  isShown: KeyFilter,
  max: number,
  page: ClaimRecord[],
): void {
  for (let entry = firstEntry; entry !== null && page.length < max; entry = entry.next) {
    // whoever stands in a line that is shown has a home
    if ((primaryEntry(entry.record, isShown) as QueueEntry).queue === queue) page.push(entry.record);
  }
}

/** The first `max` lines behind a key that are shown and not empty, in order. */
function* firstQueues(
  table: LockTable,
  afterKey: string,
  isShown: KeyFilter,
  max: number,
): Generator<void, KeyQueue[], void> {
  let best: KeyQueue[] = [];
  // once there are enough, only keys before this one are of interest
  let upperKey: string | undefined;
  let visited = 0;
  for (const queue of table.tokenIssuer.queues.walk()) {
    if (++visited % RECORDS_PER_STEP === 0) yield;
    const { key } = queue;
    if (queue.entries.size === 0 || key <= afterKey || (upperKey !== undefined && key >= upperKey) || !isShown(key))
      continue;
    best.push(queue);
    if (best.length < 2 * max) continue;
    best = takeFirst(best, max);
    upperKey = (best.at(-1) as KeyQueue).key;
  }
  return takeFirst(best, max);
}

function takeFirst(queues: KeyQueue[], max: number): KeyQueue[] {
  return queues.sort((a, b) => (a.key < b.key ? -1 : 1)).slice(0, max);
}

/** Adds those who stand in no line that is shown, behind `after`: parked, or not yet come to such a key. */
function* collectUnqueued(
  table: LockTable,
  after: ClaimRecord | null,
  isShown: KeyFilter,
  max: number,
  page: ClaimRecord[],
): Generator<void, void, void> {
  let visited = 0;
  let isSkipping = after !== null && isInTable(table, after);
  for (const record of table.records.walk()) {
    if (++visited % RECORDS_PER_STEP === 0) yield;
    if (isSkipping) {
      isSkipping = record !== after;
      continue;
    }
    if (primaryEntry(record, isShown) !== null || !record.claim.holds.some(({ key }) => isShown(key))) continue;
    page.push(record);
    if (page.length >= max) return;
  }
}
