/** Lists the claims of a lock table: by key, each queue from the front, then the claims that are in no listed queue. */

import type { Answer, ClaimView, ListOptions, ListQuery, LockSpec, Page } from "../spi/driver.ts";
import { toPage } from "../util/chunk.ts";
import type { ClaimRecord, KeyQueue, QueueEntry } from "./key-queue.ts";
import type { LockTable } from "./table.ts";
import { toAnswer } from "./table.ts";

/** Selects the claims of one page. `after`: a tag; an unknown one starts from the beginning. */
export interface TableQuery<Owner = unknown> extends Pick<ListOptions, "max" | "after"> {
  readonly query: ListQuery;
  /** May this key be shown? Other keys of a claim are left out. Default: every key may be shown. */
  readonly canSee?: (key: string) => boolean;
  /** May this claim be shown in the list of one `key`? Default: every one may. */
  readonly canSeeClaim?: (record: ClaimRecord<Owner>) => boolean;
}

type KeyFilter = (key: string) => boolean;
type ToTag = (id: string) => string;

/** How many queues or claims are visited per step. Fewer if each needs its tag, which is expensive. */
const RECORDS_PER_STEP = 1_000;
const TAGS_PER_STEP = 100;

/** Returns a page in one step. The table must have been advanced to `now`. */
export function listTable<Owner>(
  table: LockTable<Owner>,
  toTag: ToTag,
  query: TableQuery<Owner>,
  now: number,
): Page<ClaimView> {
  const steps = listSteps(table, toTag, { ...query, max: query.max + 1 });
  let step = steps.next();
  while (step.done !== true) step = steps.next();
  return toPage(
    step.value.map((record) => toView(table, toTag, record, now, query.canSee)),
    query.max,
  );
}

/**
 * Collects the claims of a page in steps. The table may change between them, so a claim that moves may be missed or listed
 * twice. The cost grows with the number of keys only: just the queues of the page are sorted.
 * @param knownLast the claim with the tag tableQuery.after, if the caller knows it; it may have been removed meanwhile
 */
export function* listSteps<Owner>(
  table: LockTable<Owner>,
  toTag: ToTag,
  tableQuery: TableQuery<Owner>,
  knownLast?: ClaimRecord<Owner>,
): Generator<void, ClaimRecord<Owner>[], void> {
  const { query, max, after, canSee, canSeeClaim } = tableQuery;
  const matches: KeyFilter =
    query.key === undefined ? (key) => key.startsWith(query.prefix) : (key) => key === query.key;
  const isShown: KeyFilter = (key) => matches(key) && (canSee?.(key) ?? true);
  const lastRecord = knownLast ?? (after === undefined ? null : yield* findByTag(table, toTag, after));
  const page: ClaimRecord<Owner>[] = [];
  const primary = lastRecord === null ? null : primaryEntry(lastRecord, isShown);
  const next = primary === null ? null : entryAfter(table, primary);
  if (next !== null) collect(next.queue, next, isShown, max, page, canSeeClaim);
  if (query.key !== undefined) {
    const queue = primary === null && isShown(query.key) ? table.queues.get(query.key) : undefined;
    if (queue !== undefined) collect(queue, queue.entries.first, isShown, max, page, canSeeClaim);
    return page;
  }
  if (lastRecord === null || primary !== null) {
    let afterKey = primary?.queue.key ?? "";
    while (page.length < max) {
      const queues = yield* firstQueues(table, afterKey, isShown, max);
      for (const queue of queues) collect(queue, queue.entries.first, isShown, max, page);
      if (queues.length < max) break;
      afterKey = (queues.at(-1) as KeyQueue<Owner>).key;
    }
  }
  if (page.length < max) yield* collectUnqueued(table, primary === null ? lastRecord : null, isShown, max, page);
  return page;
}

/** Converts a claim for a list, without the keys that `canSee` rejects. */
export function toView<Owner>(
  table: LockTable<Owner>,
  toTag: ToTag,
  record: ClaimRecord<Owner>,
  now: number,
  canSee: KeyFilter | undefined,
): ClaimView {
  const { id, recall: _recall, successors: _successors, ...claim } = record.claim;
  // at least one key remains: the claim was found by it
  const [first, ...others] = canSee === undefined ? claim.locks : claim.locks.filter(({ key }) => canSee(key));
  const locks = [first as LockSpec, ...others] as const;
  const answer = withoutRecall(toAnswer(record, now, table.sessionMs));
  const heldAge = record.isHeld ? { heldMs: now - record.heldAt } : {};
  return { ...claim, locks, tag: toTag(id), answer, ageMs: now - record.placedAt, ...heldAge };
}

/** Lists show who waits by the waiters themselves. */
function withoutRecall(answer: Answer): Answer {
  if (answer.state !== "held" || answer.recalled === undefined) return answer;
  const { recalled: _recalled, ...plainAnswer } = answer;
  return plainAnswer;
}

function* findByTag<Owner>(
  table: LockTable<Owner>,
  toTag: ToTag,
  tag: string,
): Generator<void, ClaimRecord<Owner> | null, void> {
  let visited = 0;
  for (const record of table.records.walk()) {
    if (toTag(record.claim.id) === tag) return record;
    if (++visited % TAGS_PER_STEP === 0) yield;
  }
  return null;
}

/** The entry by which a claim is listed: its first entry in a visible queue. The entry of a suspended waiter is in no queue. */
function primaryEntry<Owner>(
  { entries, isSuspended }: ClaimRecord<Owner>,
  isShown: KeyFilter,
): QueueEntry<Owner> | null {
  for (const entry of entries) if ((entry.isAdmitted || !isSuspended) && isShown(entry.queue.key)) return entry;
  return null;
}

/** The next entry in the queue; if the claim was removed meanwhile, the first entry that arrived after it. */
function entryAfter<Owner>(
  table: LockTable<Owner>,
  { queue, next, record, arrival }: QueueEntry<Owner>,
): QueueEntry<Owner> | null {
  if (isInTable(table, record)) return next;
  let entry = table.queues.get(queue.key)?.entries.first ?? null;
  while (entry !== null && entry.arrival < arrival) entry = entry.next;
  return entry;
}

function isInTable<Owner>(table: LockTable<Owner>, record: ClaimRecord<Owner>): boolean {
  return table.records.get(record.claim.id) === record;
}

/** Adds the claims whose primary entry is in this queue, starting from `firstEntry`. */
function collect<Owner>(
  queue: KeyQueue<Owner>,
  firstEntry: QueueEntry<Owner> | null,
  isShown: KeyFilter,
  max: number,
  page: ClaimRecord<Owner>[],
  canSeeClaim: (record: ClaimRecord<Owner>) => boolean = () => true,
): void {
  for (let entry = firstEntry; entry !== null && page.length < max; entry = entry.next) {
    if (!canSeeClaim(entry.record)) continue;
    // every entry in a visible queue has a primary entry
    if ((primaryEntry(entry.record, isShown) as QueueEntry<Owner>).queue === queue) page.push(entry.record);
  }
}

/** Returns the first `max` visible, non-empty queues after a key, in key order. */
function* firstQueues<Owner>(
  table: LockTable<Owner>,
  afterKey: string,
  isShown: KeyFilter,
  max: number,
): Generator<void, KeyQueue<Owner>[], void> {
  let best: KeyQueue<Owner>[] = [];
  // once there are enough queues, only keys before this one can be among the first
  let upperKey: string | undefined;
  let visited = 0;
  for (const queue of table.queues.walk()) {
    if (++visited % RECORDS_PER_STEP === 0) yield;
    const { key } = queue;
    if (queue.entries.size === 0 || key <= afterKey || (upperKey !== undefined && key >= upperKey) || !isShown(key))
      continue;
    best.push(queue);
    if (best.length < 2 * max) continue;
    best = takeFirst(best, max);
    upperKey = (best.at(-1) as KeyQueue<Owner>).key;
  }
  return takeFirst(best, max);
}

function takeFirst<Owner>(queues: KeyQueue<Owner>[], max: number): KeyQueue<Owner>[] {
  return queues.sort((a, b) => (a.key < b.key ? -1 : 1)).slice(0, max);
}

/** Adds the claims after `after` without an entry in a visible queue: suspended, or not yet in the queue of such a key. */
function* collectUnqueued<Owner>(
  table: LockTable<Owner>,
  after: ClaimRecord<Owner> | null,
  isShown: KeyFilter,
  max: number,
  page: ClaimRecord<Owner>[],
): Generator<void, void, void> {
  let visited = 0;
  let isSkipping = after !== null && isInTable(table, after);
  for (const record of table.records.walk()) {
    if (++visited % RECORDS_PER_STEP === 0) yield;
    if (isSkipping) {
      isSkipping = record !== after;
      continue;
    }
    if (primaryEntry(record, isShown) !== null || !record.claim.locks.some(({ key }) => isShown(key))) continue;
    page.push(record);
    if (page.length >= max) return;
  }
}
