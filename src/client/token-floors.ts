/**
 * The highest tokens that this client has seen. They are sent as the floors of claims, so that a store that lost its
 * counters cannot grant lower ones. Bounded; no other memory is kept for an idle key.
 */

import type { LockSpec } from "../spi/driver.ts";

/** At least this many of the last used keys are kept, and at most twice as many. */
const MIN_KEYS = 10_000;

export interface TokenFloors {
  /** The lowest token that is acceptable for these keys. */
  floor(locks: readonly LockSpec[]): bigint;
  record(locks: readonly LockSpec[], token: bigint): void;
}

/** @param isNeeded false if the store lives in this process, and so cannot lose tokens that this process has seen */
export function createTokenFloors(isNeeded: boolean): TokenFloors {
  if (!isNeeded) return { floor: () => 0n, record: () => undefined };
  // Two generations instead of one map in order of use: moving a key to the end of a Map leaves a hole at its front,
  // and a search for the oldest key walks over all holes. A key may be in both maps; `recent` then has its highest
  // token.
  let recent = new Map<string, bigint>();
  let older = recent;
  const lastToken = (key: string): bigint => recent.get(key) ?? older.get(key) ?? 0n;
  return {
    floor(locks) {
      let highest = 0n;
      for (const { key } of locks) {
        const token = lastToken(key);
        if (token > highest) highest = token;
      }
      return highest === 0n ? 0n : highest + 1n;
    },
    record(locks, token) {
      for (const { key } of locks) {
        const recentToken = recent.get(key);
        if (recentToken !== undefined) {
          if (token > recentToken) recent.set(key, token);
          continue;
        }
        const olderToken = older.get(key) ?? 0n;
        if (recent.size >= MIN_KEYS) {
          older = recent;
          recent = new Map();
        }
        recent.set(key, token > olderToken ? token : olderToken);
      }
    },
  };
}
