/** The figures and rows of `holdfast top`: pure functions from the claims of a store to what is shown. */

import type { LockMode } from "../../../spi/claim-info.ts";
import { modeOf } from "../../../spi/claim-info.ts";
import type { ClaimView, LockSpec } from "../../../spi/driver.ts";
import { sinceMs } from "../list.ts";

/** A holder of a key. Its tag identifies its claim and gives no right to it. */
interface KeyHolder {
  readonly tag: string;
  readonly label: string;
}

/** One key: its holders and its waiters. Times are whole milliseconds. */
export interface KeyRow {
  readonly key: string;
  readonly mode: LockMode;
  /** For a semaphore: the permits that are held. */
  readonly permits?: number;
  /** For a semaphore: the most permits that may be held at once. */
  readonly limit?: number;
  readonly holders: readonly KeyHolder[];
  /** The time since the grant of the holder that has held it longest; null: no claim holds it. */
  readonly heldMs: number | null;
  /** The lease that ends first; null: it is not held, or its holders have sessions. */
  readonly remainingMs: number | null;
  readonly waiters: number;
  /** null: no claim waits. */
  readonly longestWaitMs: number | null;
}

/** The figures of all claims together. A claim over several keys counts once. */
export interface Figures {
  readonly held: number;
  readonly waiting: number;
  readonly longestWaitMs: number | null;
}

/** What one list of the store shows. */
export interface Snapshot {
  readonly figures: Figures;
  /** In the order of the list. */
  readonly rows: readonly KeyRow[];
  /** False: the store has more claims. */
  readonly isComplete: boolean;
}

/** The orders, in the order in which the key `s` selects them. */
export const SORT_ORDERS = ["waiters", "longestWait", "held", "key"] as const;

/** By which column rows are sorted. */
export type SortOrder = (typeof SORT_ORDERS)[number];

/** The claims, by key. Keys of a claim that do not begin with `prefix` are left out. */
export function createSnapshot(views: readonly ClaimView[], prefix: string, isComplete: boolean): Snapshot {
  return { figures: countClaims(views), rows: groupByKey(views, prefix), isComplete };
}

function countClaims(views: readonly ClaimView[]): Figures {
  const waiting = views.filter((view) => !isHeld(view));
  return { held: views.length - waiting.length, waiting: waiting.length, longestWaitMs: findLongestWait(waiting) };
}

function groupByKey(views: readonly ClaimView[], prefix: string): KeyRow[] {
  const queues = new Map<string, { readonly view: ClaimView; readonly spec: LockSpec }[]>();
  for (const view of views) {
    for (const spec of view.locks) {
      if (!spec.key.startsWith(prefix)) continue;
      const queue = queues.get(spec.key);
      if (queue === undefined) queues.set(spec.key, [{ view, spec }]);
      else queue.push({ view, spec });
    }
  }
  return Array.from(queues, ([key, queue]) => {
    const held = queue.filter(({ view }) => isHeld(view));
    const waiting = queue.filter(({ view }) => !isHeld(view)).map(({ view }) => view);
    const holders = held.map(({ view }) => view);
    return {
      key,
      ...describeMode(
        held.map(({ spec }) => spec),
        queue.map(({ spec }) => spec),
      ),
      holders: holders.map(({ tag, label }) => ({ tag, label })),
      heldMs: maxOf(holders.map(sinceMs)),
      remainingMs: findShortestLease(holders),
      waiters: waiting.length,
      longestWaitMs: findLongestWait(waiting),
    };
  });
}

function isHeld({ answer }: ClaimView): boolean {
  return answer.state === "held";
}

/** The mode of the first holder, or else of the first waiter. */
function describeMode(held: readonly LockSpec[], all: readonly LockSpec[]): Pick<KeyRow, "mode" | "permits" | "limit"> {
  const first = (held[0] ?? all[0]) as LockSpec;
  const mode = modeOf([first]);
  if (mode !== "semaphore") return { mode };
  return { mode, permits: held.reduce((sum, { permits }) => sum + permits, 0), limit: first.limit };
}

function findLongestWait(waiting: readonly ClaimView[]): number | null {
  return maxOf(waiting.map(({ ageMs }) => ageMs));
}

function findShortestLease(holders: readonly ClaimView[]): number | null {
  const leases = holders.flatMap(({ answer, ttlMs }) =>
    answer.state === "held" && ttlMs !== "session" ? [answer.remainingMs] : [],
  );
  return leases.length === 0 ? null : Math.max(0, Math.floor(Math.min(...leases)));
}

function maxOf(times: readonly number[]): number | null {
  return times.length === 0 ? null : Math.floor(Math.max(...times));
}

/** The rows whose key or one of whose holders contains the text, in any case. */
export function filterRows(rows: readonly KeyRow[], text: string): readonly KeyRow[] {
  if (text === "") return rows;
  const wanted = text.toLowerCase();
  const contains = (value: string): boolean => value.toLowerCase().includes(wanted);
  return rows.filter(({ key, holders }) => contains(key) || holders.some(({ label }) => contains(label)));
}

/** Sorted: the largest figure first, keys in ascending order. Rows with the same figure are in the order of their keys. */
export function sortRows(rows: readonly KeyRow[], order: SortOrder, isReversed: boolean): readonly KeyRow[] {
  const compare = COMPARISONS[order];
  const sign = isReversed ? -1 : 1;
  return [...rows].sort((one, other) => sign * compare(one, other) || compareKeys(one, other));
}

const COMPARISONS: Readonly<Record<SortOrder, (one: KeyRow, other: KeyRow) => number>> = {
  waiters: (one, other) => other.waiters - one.waiters,
  longestWait: (one, other) => compareTimes(one.longestWaitMs, other.longestWaitMs),
  held: (one, other) => compareTimes(one.heldMs, other.heldMs),
  key: compareKeys,
};

function compareTimes(one: number | null, other: number | null): number {
  return (other ?? -1) - (one ?? -1);
}

function compareKeys(one: KeyRow, other: KeyRow): number {
  return one.key < other.key ? -1 : Number(one.key > other.key);
}
