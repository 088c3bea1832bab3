/** What the callers of a worker ask for: few keys, so that they always compete. */

import type { Random } from "../testing/random.ts";
import type { Operation, OperationKind } from "./history.ts";
import { OPERATION_KINDS } from "./history.ts";

const PERMITS_LIMIT = 3;

/**
 * Long keys are held for a long time whenever a fault is about to strike, so that the loss of their locks shows. Brief keys never are,
 * so that they are granted many times a second.
 */
export type KeySet = "long" | "brief";
/** How long a holder works at most, if the nemesis asks for no more. */
const LONGEST_WORK_MS: Readonly<Record<KeySet, number>> = { long: 10, brief: 4 };

interface Keys {
  /** Locked in every way but by permits. */
  readonly locks: readonly [string, ...string[]];
  readonly permits: string;
  readonly leader: string;
}

const KEY_SETS: Readonly<Record<KeySet, Keys>> = {
  long: { locks: ["a", "b", "c"], permits: "permits", leader: "leader" },
  brief: {
    locks: ["brief-a", "brief-b", "brief-c", "brief-d", "brief-e", "brief-f", "brief-g"],
    permits: "brief-permits",
    leader: "brief-leader",
  },
};

export interface OperationChooser {
  next(keys: KeySet): Omit<Operation, "op">;
  /** How long a holder works, in milliseconds. */
  workMs(keys: KeySet): number;
  /** Operations of this kind are chosen no more. */
  exclude(kind: OperationKind): void;
}

export function createOperationChooser(random: Random, ttlMs: number): OperationChooser {
  const kinds = new Set<OperationKind>(OPERATION_KINDS);
  return {
    next(keySet) {
      const { locks, permits, leader } = KEY_SETS[keySet];
      const kind = random.pick([...kinds] as [OperationKind, ...OperationKind[]]);
      // some do not wait, some give up, most wait for longer than any fault lasts
      const waitMs = random.pick([0, random.int(ttlMs), 8 * ttlMs, 8 * ttlMs, 8 * ttlMs]);
      const exclusive = { kind, permits: 1, limit: 1, waitMs };
      switch (kind) {
        case "several": {
          const first = random.int(locks.length - 1);
          return { ...exclusive, keys: locks.slice(first, first + 2 + random.int(2)) };
        }
        case "reader":
          return { ...exclusive, keys: [random.pick(locks)], limit: null };
        case "permits":
          return { ...exclusive, keys: [permits], permits: 1 + random.int(PERMITS_LIMIT), limit: PERMITS_LIMIT };
        case "leader":
          return { ...exclusive, keys: [leader] };
        default:
          return { ...exclusive, keys: [random.pick(locks)] };
      }
    },
    workMs: (keySet) => random.int(LONGEST_WORK_MS[keySet]),
    exclude: (kind) => void kinds.delete(kind),
  };
}
