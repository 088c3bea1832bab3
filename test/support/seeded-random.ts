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

export function seededRandom(seed: number): SeededRandom {
  let state = seed | 0;
  // mulberry32: 32 bits of state are plenty for choosing test steps.
  const next = (): number => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const int = (below: number): number => Math.floor(next() * below);
  return {
    next,
    int,
    pick: <T>(items: readonly T[]): T => {
      if (items.length === 0) throw new RangeError("nothing to pick from");
      return items[int(items.length)] as T;
    },
    chance: (probability) => next() < probability,
    fork: () => seededRandom(int(2 ** 32)),
  };
}
