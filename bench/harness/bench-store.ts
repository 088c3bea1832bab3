/** A store of the bench's own, and what it has done. */

import { sum } from "./stats.ts";

/** The server that all implementations share, or a file. */
export interface BenchStore {
  /** What implementations open. */
  readonly address: string;
  work(): Promise<StoreWork>;
}

/** Since the store's start. */
export interface StoreWork {
  /** How often each command was performed. */
  readonly calls: ReadonlyMap<string, number>;
  /** Microseconds of CPU; NaN if it has no process of its own. */
  readonly cpu: number;
}

/** How often these commands came between the two. */
export function callsBetween(before: StoreWork, after: StoreWork, names: readonly string[]): number {
  const sumCalls = ({ calls }: StoreWork): number => sum(names.map((name) => calls.get(name) ?? 0));
  return sumCalls(after) - sumCalls(before);
}

/** What the bench itself asks. */
const OWN_COMMAND = "info";

/** How often any command came between the two, also within scripts. */
export function allCallsBetween(before: StoreWork, after: StoreWork): number {
  const names = [...after.calls.keys()].filter((name) => name !== OWN_COMMAND);
  return callsBetween(before, after, names);
}
