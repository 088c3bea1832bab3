/** How often wrong credentials came, by where they came from. */

const MINUTE_MS = 60_000;
/** Addresses remembered; beyond, the oldest is forgotten. */
const MOST_ADDRESSES = 10_000;

export class Failures {
  /** All of them, since the start. */
  total = 0;
  readonly #most: number;
  readonly #now: () => number;
  readonly #minutes = new Map<string, { count: number; readonly until: number }>();

  /** most: in a minute, from one address. */
  constructor(most: number, now: () => number) {
    this.#most = most;
    this.#now = now;
  }

  /** Counts one; false: there were too many from there in this minute. */
  add(address: string): boolean {
    this.total++;
    const now = this.#now();
    const known = this.#minutes.get(address);
    if (known !== undefined && now < known.until) return ++known.count <= this.#most;
    // anew, at the end: the first is always the oldest
    this.#minutes.delete(address);
    this.#minutes.set(address, { count: 1, until: now + MINUTE_MS });
    if (this.#minutes.size > MOST_ADDRESSES) {
      const [oldest] = this.#minutes.keys();
      this.#minutes.delete(oldest as string);
    }
    return this.#most >= 1;
  }
}
