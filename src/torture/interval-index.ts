/** Answers whether any of many intervals overlaps another one. */

import { countUpTo } from "./run-time.ts";

export interface Interval {
  readonly from: number;
  readonly to: number;
}

export class IntervalIndex {
  readonly #intervals: readonly Interval[];
  /** For each interval, the latest end of it and of those before it. */
  readonly #latestEnds: readonly number[];

  constructor(intervals: readonly Interval[]) {
    this.#intervals = intervals.toSorted((a, b) => a.from - b.from);
    let latest = Number.NEGATIVE_INFINITY;
    this.#latestEnds = this.#intervals.map(({ to }) => {
      latest = Math.max(latest, to);
      return latest;
    });
  }

  overlaps(from: number, to: number): boolean {
    const begun = countUpTo(this.#intervals, to, (interval) => interval.from);
    return begun > 0 && (this.#latestEnds[begun - 1] as number) > from;
  }
}
