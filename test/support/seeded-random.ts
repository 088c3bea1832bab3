import { createRandom } from "../../src/testing/random.ts";

/** Random choices that a seed repeats: a failing run is run again by its seed. */
export type SeededRandom = {
  /** From 0 up to, not including, 1. */
  next(): number;
  /** A whole number from 0 up to, not including, `below`. */
  int(below: number): number;
  pick<T>(items: readonly T[]): T;
  /** True with this probability. */
  chance(probability: number): boolean;
  /** A generator of its own, so that more draws in one place do not shift those in another. */
  fork(): SeededRandom;
};

/** The suite's generator, with what only our own tests need. */
export function seededRandom(seed: number): SeededRandom {
  const { next, int, chance } = createRandom(seed);
  return {
    next,
    int,
    chance,
    pick: <T>(items: readonly T[]): T => {
      if (items.length === 0) throw new RangeError("nothing to pick from");
      return items[int(items.length)] as T;
    },
    fork: () => seededRandom(int(2 ** 32)),
  };
}
