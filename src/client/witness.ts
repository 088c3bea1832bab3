/**
 * The highest tokens this client has seen, as a witness against a store that lost its counters: sent as a claim's
 * floor. Bounded; nothing else is kept for an idle key.
 */

import type { Hold } from "../spi/driver.ts";

/** Remembered are the last so many keys at least, and twice as many at most. */
const KEYS = 10_000;

export interface Witness {
  /** No token below this is acceptable for these keys. */
  floor(holds: readonly Hold[]): bigint;
  saw(holds: readonly Hold[], token: bigint): void;
}

/** @param needed false where the store dies with this process, and so cannot forget what this process has seen */
export function makeWitness(needed: boolean): Witness {
  if (!needed) return { floor: () => 0n, saw: () => undefined };
  // Two generations instead of one map in order of use: moving a key to a Map's end leaves a hole at its front, and
  // looking for the oldest key then walks over all of them. A key may stand in both; young then has its
  // highest token.
  let young = new Map<string, bigint>();
  let old = young;
  const last = (key: string): bigint => young.get(key) ?? old.get(key) ?? 0n;
  return {
    floor(holds) {
      let highest = 0n;
      for (const { key } of holds) {
        const token = last(key);
        if (token > highest) highest = token;
      }
      return highest === 0n ? 0n : highest + 1n;
    },
    saw(holds, token) {
      for (const { key } of holds) {
        const known = young.get(key);
        if (known !== undefined) {
          if (token > known) young.set(key, token);
          continue;
        }
        const before = old.get(key) ?? 0n;
        if (young.size >= KEYS) {
          old = young;
          young = new Map();
        }
        young.set(key, token > before ? token : before);
      }
    },
  };
}
