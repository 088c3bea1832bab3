/** How often wrong credentials came, by where they came from. */

const MINUTE_MS = 60_000;
/** Addresses remembered; beyond, the oldest is forgotten. */
const MAX_ADDRESSES = 10_000;

export class FailureLimiter {
  /** All of them, since the start. */
  total = 0;
  readonly #maxPerMinute: number;
  readonly #now: () => number;
  readonly #windows = new Map<string, { count: number; readonly until: number }>();

  /** most: in a minute, from one address. */
  constructor(maxPerMinute: number, now: () => number) {
    this.#maxPerMinute = maxPerMinute;
    this.#now = now;
  }

  /** Counts one; false: there were too many from there in this minute. */
  record(address: string): boolean {
    this.total++;
    const now = this.#now();
    const window = this.#windows.get(address);
    if (window !== undefined && now < window.until) return ++window.count <= this.#maxPerMinute;
    // anew, at the end: the first is always the oldest
    this.#windows.delete(address);
    this.#windows.set(address, { count: 1, until: now + MINUTE_MS });
    if (this.#windows.size > MAX_ADDRESSES) {
      const [oldest] = this.#windows.keys();
      this.#windows.delete(oldest as string);
    }
    return this.#maxPerMinute >= 1;
  }
}
