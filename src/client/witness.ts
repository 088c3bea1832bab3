/**
 * The highest tokens this client has seen, as a witness against a store that lost its counters: sent as a claim's
 * floor. Bounded; nothing else is kept for an idle key.
 */

import type { Hold } from "../spi/driver.ts";

const MOST_KEYS = 10_000;

export interface Witness {
  /** No token below this is acceptable for these keys. */
  floor(holds: readonly Hold[]): bigint;
  saw(holds: readonly Hold[], token: bigint): void;
}

/** @param needed false where the store dies with this process, and so cannot forget what this process has seen */
export function makeWitness(needed: boolean): Witness {
  if (!needed) return { floor: () => 0n, saw: () => undefined };
  // a Map remembers the order of insertion: the first key is the one not seen for longest
  const seen = new Map<string, bigint>();
  return {
    floor(holds) {
      let floor = 0n;
      for (const { key } of holds) {
        const token = seen.get(key);
        if (token !== undefined && token >= floor) floor = token + 1n;
      }
      return floor;
    },
    saw(holds, token) {
      for (const { key } of holds) {
        const known = seen.get(key) ?? 0n;
        seen.delete(key);
        seen.set(key, token > known ? token : known);
      }
      for (const key of seen.keys()) {
        if (seen.size <= MOST_KEYS) break;
        seen.delete(key);
      }
    },
  };
}
