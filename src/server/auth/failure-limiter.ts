/** Counts wrong credentials by address. */

const MINUTE_MS = 60_000;
/** Maximum number of remembered addresses; beyond it the oldest is dropped. */
const MAX_ADDRESSES = 10_000;

export class FailureLimiter {
  /** Failures of all addresses since the start. */
  total = 0;
  readonly #maxPerMinute: number;
  readonly #now: () => number;
  readonly #windows = new Map<string, { count: number; readonly until: number }>();

  /** maxPerMinute: from one address. */
  constructor(maxPerMinute: number, now: () => number) {
    this.#maxPerMinute = maxPerMinute;
    this.#now = now;
  }

  /** Counts a failure; false: too many from that address in this minute. */
  record(address: string): boolean {
    this.total++;
    const now = this.#now();
    const window = this.#windows.get(address);
    if (window !== undefined && now < window.until) return ++window.count <= this.#maxPerMinute;
    // deleted and inserted at the end: the first entry is always the oldest
    this.#windows.delete(address);
    this.#windows.set(address, { count: 1, until: now + MINUTE_MS });
    if (this.#windows.size > MAX_ADDRESSES) {
      const [oldest] = this.#windows.keys();
      this.#windows.delete(oldest as string);
    }
    return this.#maxPerMinute >= 1;
  }
}
