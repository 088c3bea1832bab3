/** Random choices from a seed, so that a failing run can be repeated. */
export interface Random {
  /** From 0 up to, not including, 1. */
  next(): number;
  /** An integer from 0 up to, not including, `below`. */
  int(below: number): number;
  /** One of the items. */
  pick<T>(items: readonly [T, ...T[]]): T;
  /** True with this probability. */
  chance(probability: number): boolean;
}

/** The generator of a seed: mulberry32, whose 32 bits of state are plenty for choosing test steps. */
export function createRandom(seed: number): Random {
  let state = seed | 0;
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
    pick: <T>(items: readonly [T, ...T[]]): T => items[int(items.length)] as T,
    chance: (probability) => next() < probability,
  };
}
