/** A histogram of durations with fixed buckets: enough for rates and rough quantiles, at the cost of a few numbers. */

/** Upper bounds of the buckets, in seconds; the last one is infinity. */
export const BUCKETS: readonly number[] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1_800, 3_600];

const BUCKETS_MS: readonly number[] = BUCKETS.map((seconds) => seconds * 1_000);

export class Histogram {
  /** One count per bucket, not cumulative; one more than BUCKETS. */
  readonly counts: Float64Array = new Float64Array(BUCKETS.length + 1);
  /** Sum of all durations, in milliseconds. */
  sumMs = 0;

  add(ms: number): void {
    this.sumMs += ms;
    let bucket = 0;
    while (bucket < BUCKETS_MS.length && ms > (BUCKETS_MS[bucket] as number)) bucket++;
    this.counts[bucket] = (this.counts[bucket] as number) + 1;
  }
}
