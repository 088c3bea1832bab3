/** Figures of several rounds, and how they compare. */

/** One figure over the counted rounds, round by round. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
  readonly rounds: readonly number[];
}

export function computeSpread(rounds: readonly number[]): Spread {
  return { median: quantile(rounds, 0.5), min: Math.min(...rounds), max: Math.max(...rounds), rounds };
}

/** The ratio in each round: two figures of one round met the same machine. */
export function computeRatio(numerators: readonly number[], denominators: readonly number[]): Spread {
  return computeSpread(numerators.map((figure, round) => figure / (denominators[round] as number)));
}

/** @param fraction 0.5: the median. NaN if there is nothing. */
export function quantile(figures: readonly number[], fraction: number): number {
  const sorted = Float64Array.from(figures).sort();
  if (sorted.length === 0) return Number.NaN;
  const position = (sorted.length - 1) * fraction;
  const low = sorted[Math.floor(position)] as number;
  return low + ((sorted[Math.ceil(position)] as number) - low) * (position - Math.floor(position));
}

/** Standard deviation by mean: how unevenly the callers were served. */
export function variation(figures: readonly number[]): number {
  const mean = figures.reduce((sum, figure) => sum + figure, 0) / figures.length;
  const variance = figures.reduce((sum, figure) => sum + (figure - mean) ** 2, 0) / figures.length;
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
  let excludedCount = 0;
  // the chance that at most so many of `count` lie below the true median
  let chance = 0.5 ** count;
  for (let term = chance; 2 * chance <= 1 - CONFIDENCE; excludedCount++) {
    term *= (count - excludedCount) / (excludedCount + 1);
    chance += term;
  }
  const index = Math.max(0, excludedCount - 1);
  const [low, high] = [sorted[index] ?? Number.NaN, sorted[count - 1 - index] ?? Number.NaN];
  return { median: quantile(figures, 0.5), low, high, isSure: excludedCount > 0 };
}

export function sum(figures: readonly number[]): number {
  return figures.reduce((total, figure) => total + figure, 0);
}
