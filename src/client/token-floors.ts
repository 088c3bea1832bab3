/**
 * The highest tokens this client has seen, as a witness against a store that lost its counters: sent as a claim's
 * floor. Bounded; nothing else is kept for an idle key.
 */

import type { LockSpec } from "../spi/driver.ts";

/** Remembered are the last so many keys at least, and twice as many at most. */
const MIN_KEYS = 10_000;

export interface TokenFloors {
  /** No token below this is acceptable for these keys. */
  floor(holds: readonly LockSpec[]): bigint;
  record(holds: readonly LockSpec[], token: bigint): void;
}

/** @param isNeeded false where the store dies with this process, and so cannot forget what this process has seen */
export function createTokenFloors(isNeeded: boolean): TokenFloors {
  if (!isNeeded) return { floor: () => 0n, record: () => undefined };
  // Two generations instead of one map in order of use: moving a key to a Map's end leaves a hole at its front, and
  // looking for the oldest key then walks over all of them. A key may stand in both; young then has its
  // highest token.
  let recent = new Map<string, bigint>();
  let older = recent;
  const lastToken = (key: string): bigint => recent.get(key) ?? older.get(key) ?? 0n;
  return {
    floor(holds) {
      let highest = 0n;
      for (const { key } of holds) {
        const token = lastToken(key);
        if (token > highest) highest = token;
      }
      return highest === 0n ? 0n : highest + 1n;
    },
    record(holds, token) {
      for (const { key } of holds) {
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
