/** Figures of several rounds, and how they compare. */

/** One figure over the counted rounds, round by round. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
  readonly rounds: readonly number[];
}

export function spreadOf(rounds: readonly number[]): Spread {
  return { median: quantile(rounds, 0.5), min: Math.min(...rounds), max: Math.max(...rounds), rounds };
}

/** The ratio in each round: two figures of one round met the same machine. */
export function ratioOf(above: readonly number[], below: readonly number[]): Spread {
  return spreadOf(above.map((figure, round) => figure / (below[round] as number)));
}

/** @param fraction 0.5: the median. NaN if there is nothing. */
export function quantile(figures: readonly number[], fraction: number): number {
  const sorted = Float64Array.from(figures).sort();
  if (sorted.length === 0) return Number.NaN;
  const at = (sorted.length - 1) * fraction;
  const low = sorted[Math.floor(at)] as number;
  return low + ((sorted[Math.ceil(at)] as number) - low) * (at - Math.floor(at));
}

/** Standard deviation by mean: how unevenly the callers were served. */
export function variation(figures: readonly number[]): number {
  const mean = figures.reduce((sum, one) => sum + one, 0) / figures.length;
  const variance = figures.reduce((sum, one) => sum + (one - mean) ** 2, 0) / figures.length;
  return Math.sqrt(variance) / mean;
}

/** A median, and between which two figures the true one lies. */
export interface Interval {
  readonly median: number;
  readonly low: number;
  readonly high: number;
  /** There were figures enough to say so at 95 %. */
  readonly isSure: boolean;
}

const CONFIDENCE = 0.95;

/**
 * The interval of the median at 95 %, from the order of the figures alone (sign test), whatever their distribution: of
 * 15 figures, from the fourth to the twelfth. Fewer than six cannot tell so much: then from the least to the most.
 */
export function medianInterval(figures: readonly number[]): Interval {
  const sorted = Float64Array.from(figures).sort();
  const count = sorted.length;
  let leftOut = 0;
  // the chance that at most so many of `count` lie below the true median
  let chance = 0.5 ** count;
  for (let term = chance; 2 * chance <= 1 - CONFIDENCE; leftOut++) {
    term *= (count - leftOut) / (leftOut + 1);
    chance += term;
  }
  const at = Math.max(0, leftOut - 1);
  const [low, high] = [sorted[at] ?? Number.NaN, sorted[count - 1 - at] ?? Number.NaN];
  return { median: quantile(figures, 0.5), low, high, isSure: leftOut > 0 };
}
