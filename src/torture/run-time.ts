/**
 * How long the event loop of a process ran, by the times at which it reported anything. While it is stopped, blocked, or does not
 * get the processor, it reports nothing, and nothing can be asked of it.
 */

/** Reports are at most so far apart in a process that runs: a longer silence counts as this. */
const LONGEST_GAP = 200_000;
/** Reports that come sooner tell nothing more. */
const SHORTEST_GAP = 10_000;

/** Times in microseconds. */
export class RunTime {
  readonly #reports: number[] = [];
  /** For each report, how long it had run then; empty: not yet computed. */
  #ranUntil: number[] = [];

  /** It ran at this time. */
  add(at: number): void {
    const last = this.#reports.at(-1);
    if (last !== undefined && at >= last && at < last + SHORTEST_GAP) return;
    this.#reports.push(at);
    this.#ranUntil = [];
  }

  /** How long it ran from one time to another. */
  between(from: number, to: number): number {
    return to <= from ? 0 : this.#until(to) - this.#until(from);
  }

  #until(at: number): number {
    if (this.#ranUntil.length === 0) this.#compute();
    const index = countUpTo(this.#reports, at, (report) => report) - 1;
    const last = this.#reports[index];
    if (last === undefined) return 0;
    // after the last report it did not run, as far as is known
    const isLast = index === this.#reports.length - 1;
    return (this.#ranUntil[index] as number) + (isLast ? 0 : Math.min(at - last, LONGEST_GAP));
  }

  #compute(): void {
    this.#reports.sort((a, b) => a - b);
    let ran = 0;
    this.#ranUntil = this.#reports.map((at, index) => {
      if (index > 0) ran += Math.min(at - (this.#reports[index - 1] as number), LONGEST_GAP);
      return ran;
    });
  }
}

/** How many items, which are in the order of their times, have a time of at most `at`. */
export function countUpTo<T>(items: readonly T[], at: number, timeOf: (item: T) => number): number {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (timeOf(items[middle] as T) <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}
