/** The queue of one key. */

import type { DashboardEvent, ListedClaim } from "../../gateway/dashboard/view-types.ts";

/** The claims of one key, in the order of its queue. */
export interface KeyQueue {
  readonly holders: readonly ListedClaim[];
  readonly waiters: readonly ListedClaim[];
}

/** The claims with this key. */
export function splitQueue(claims: readonly ListedClaim[], key: string): KeyQueue {
  const own = claims.filter(({ locks }) => locks.some((lock) => lock.key === key));
  return {
    holders: own.filter(({ state }) => state === "held"),
    waiters: own.filter(({ state }) => state === "waiting"),
  };
}

/** The other keys of a claim. */
export function listOtherKeys(claim: ListedClaim, key: string): readonly string[] {
  return claim.locks.map((lock) => lock.key).filter((other) => other !== key);
}

/** After these events a holder keeps its place until it has released. */
const LOSSES: readonly string[] = ["revoked", "maxHoldExceeded"];

/** The tags of holders that have lost the lock already, and have not released it yet. */
export function findLost(events: readonly DashboardEvent[]): ReadonlySet<string> {
  return new Set(events.filter(({ kind }) => LOSSES.includes(kind)).map(({ tag }) => tag));
}

/** The time since the grant of a holder, or since the arrival of a waiter. */
export function timeInState({ state, ageMs, heldMs }: ListedClaim): number {
  return state === "held" ? (heldMs ?? ageMs) : ageMs;
}

/** The mode in which a key is held; for a semaphore the permits of all holders: "3 of 4 permits". */
export function describeHolding(holders: readonly [ListedClaim, ...ListedClaim[]], key: string): string {
  const locks = holders.flatMap((claim) => claim.locks.filter((lock) => lock.key === key));
  const [first] = locks;
  if (first?.mode !== "semaphore") return describeMode(holders[0], key);
  const permits = locks.reduce((sum, lock) => sum + (lock.permits ?? 1), 0);
  return `${permits} of ${first.limit ?? "?"} permits`;
}

/** The mode of a claim on a key: "exclusive", "shared", "2 of 4 permits". */
export function describeMode(claim: ListedClaim, key: string): string {
  const lock = claim.locks.find((candidate) => candidate.key === key) ?? claim.locks[0];
  return lock.mode === "semaphore" ? `${lock.permits ?? 1} of ${lock.limit ?? "?"} permits` : lock.mode;
}
