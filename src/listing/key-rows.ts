/**
 * The figures and rows of `holdfast top` and of the dashboard: pure functions from the claims of a store to what is shown.
 * The pages of the dashboard run them in a browser.
 */

import type { ClaimInfo, LockInfo, LockMode } from "../spi/claim-info.ts";

/** A claim in a list. Its token is shown by nothing here. */
export type ListedClaim = Omit<ClaimInfo, "token">;

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
export function createSnapshot(claims: readonly ListedClaim[], prefix: string, isComplete: boolean): Snapshot {
  return { figures: countClaims(claims), rows: groupByKey(claims, prefix), isComplete };
}

function countClaims(claims: readonly ListedClaim[]): Figures {
  const waiting = claims.filter((claim) => !isHeld(claim));
  return { held: claims.length - waiting.length, waiting: waiting.length, longestWaitMs: findLongestWait(waiting) };
}

function groupByKey(claims: readonly ListedClaim[], prefix: string): KeyRow[] {
  const queues = new Map<string, { readonly claim: ListedClaim; readonly lock: LockInfo }[]>();
  for (const claim of claims) {
    for (const lock of claim.locks) {
      if (!lock.key.startsWith(prefix)) continue;
      const queue = queues.get(lock.key);
      if (queue === undefined) queues.set(lock.key, [{ claim, lock }]);
      else queue.push({ claim, lock });
    }
  }
  return Array.from(queues, ([key, queue]) => {
    const held = queue.filter(({ claim }) => isHeld(claim));
    const waiting = queue.filter(({ claim }) => !isHeld(claim)).map(({ claim }) => claim);
    const holders = held.map(({ claim }) => claim);
    return {
      key,
      ...describeMode(
        held.map(({ lock }) => lock),
        queue.map(({ lock }) => lock),
      ),
      holders: holders.map(({ tag, label }) => ({ tag, label })),
      heldMs: maxOf(holders.map(({ ageMs, heldMs }) => heldMs ?? ageMs)),
      remainingMs: findShortestLease(holders),
      waiters: waiting.length,
      longestWaitMs: findLongestWait(waiting),
    };
  });
}

function isHeld({ state }: ListedClaim): boolean {
  return state === "held";
}

/** The mode of the first holder, or else of the first waiter. */
function describeMode(held: readonly LockInfo[], all: readonly LockInfo[]): Pick<KeyRow, "mode" | "permits" | "limit"> {
  const { mode, limit } = (held[0] ?? all[0]) as LockInfo;
  if (limit === undefined) return { mode };
  return { mode, permits: held.reduce((sum, { permits = 0 }) => sum + permits, 0), limit };
}

function findLongestWait(waiting: readonly ListedClaim[]): number | null {
  return maxOf(waiting.map(({ ageMs }) => ageMs));
}

function findShortestLease(holders: readonly ListedClaim[]): number | null {
  const leases = holders.flatMap(({ remainingMs }) => (remainingMs === null ? [] : [remainingMs]));
  return leases.length === 0 ? null : Math.min(...leases);
}

function maxOf(times: readonly number[]): number | null {
  return times.length === 0 ? null : times.reduce((longest, time) => Math.max(longest, time));
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
