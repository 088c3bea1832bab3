/** What the callers of a worker ask for: few keys, so that they always compete. */

import type { Random } from "../testing/random.ts";
import type { Operation, OperationKind } from "./history.ts";
import { OPERATION_KINDS } from "./history.ts";

/** Locked in every way but by permits. */
const KEYS = ["a", "b", "c"] as const;
const PERMITS_KEY = "permits";
const PERMITS_LIMIT = 3;
const LEADER_KEY = "leader";
/** A long hold outlives the faults that strike it, so that the loss of its lock shows. */
const LONGEST_HOLD_LEASES = 4;
/** Each worker begins one so often: of the time, not of the holds, since a busy machine has few of these. */
const LONG_HOLD_EVERY_LEASES = 5;
const SHORT_HOLD_MS = 10;

export interface OperationChooser {
  next(): Omit<Operation, "op">;
  /** How long a holder works, in milliseconds. */
  workMs(): number;
  /** Operations of this kind are chosen no more. */
  exclude(kind: OperationKind): void;
}

export function createOperationChooser(random: Random, ttlMs: number): OperationChooser {
  const kinds = new Set<OperationKind>(OPERATION_KINDS);
  let nextLongHoldAt = 0;
  return {
    next() {
      const kind = random.pick([...kinds] as [OperationKind, ...OperationKind[]]);
      // some do not wait, some give up, most wait for longer than any fault lasts
      const waitMs = random.pick([0, random.int(ttlMs), 8 * ttlMs, 8 * ttlMs, 8 * ttlMs]);
      const exclusive = { kind, permits: 1, limit: 1, waitMs };
      switch (kind) {
        case "several":
          return { ...exclusive, keys: KEYS.slice(random.int(2), 2 + random.int(2)) };
        case "reader":
          return { ...exclusive, keys: [random.pick(KEYS)], limit: null };
        case "permits":
          return { ...exclusive, keys: [PERMITS_KEY], permits: 1 + random.int(PERMITS_LIMIT), limit: PERMITS_LIMIT };
        case "leader":
          return { ...exclusive, keys: [LEADER_KEY] };
        default:
          return { ...exclusive, keys: [random.pick(KEYS)] };
      }
    },
    workMs() {
      const now = performance.now();
      if (now < nextLongHoldAt) return random.int(SHORT_HOLD_MS);
      nextLongHoldAt = now + random.int(2 * LONG_HOLD_EVERY_LEASES * ttlMs);
      return random.int(LONGEST_HOLD_LEASES * ttlMs);
    },
    exclude: (kind) => void kinds.delete(kind),
  };
}
