/**
 * Whether the store behind a relay answers. A client's call that was answered says yes. One that failed says nothing, since
 * the call itself may be at fault; then, and where there was none lately, a call of our own that changes nothing tells.
 * The store is asked only when somebody wants to know.
 */

import type { Clock } from "../clock.ts";
import { newId } from "../ids.ts";
import type { Claim, Driver } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";

/** So old may be what is known. */
const FRESH_MS = 2_000;
/** A store that has not answered for so long does not answer. */
const LATE_MS = 3_000;

export class StoreHealth {
  readonly #driver: Driver;
  readonly #clock: Clock;
  #answers = true;
  #heardAt: number;
  /** When our own call that is under way was made; null: none is. */
  #askedAt: number | null = null;

  constructor(driver: Driver, clock: Clock) {
    this.#driver = driver;
    this.#clock = clock;
    this.#heardAt = clock.now();
  }

  answered(): void {
    this.#answers = true;
    this.#heardAt = this.#clock.now();
  }

  /** A call has failed. */
  doubt(): void {
    this.#heardAt = Number.NEGATIVE_INFINITY;
  }

  /** Why nothing can be granted, as far as is known; null: it can. Asks the store if that was long ago. */
  trouble(): string | null {
    const now = this.#clock.now();
    if (this.#askedAt === null && now - this.#heardAt >= FRESH_MS) this.#ask(now);
    const isLate = this.#askedAt !== null && now - this.#askedAt >= LATE_MS;
    return this.#answers && !isLate ? null : `the store (${this.#driver.name}) cannot be reached`;
  }

  #ask(now: number): void {
    this.#askedAt = now;
    const told = (answers: boolean): void => {
      this.#askedAt = null;
      this.#answers = answers;
      this.#heardAt = this.#clock.now();
    };
    this.#driver.renew([nobodys()]).then(
      () => told(true),
      () => told(false),
    );
  }
}

/** A claim that was never placed: the store knows nothing of it. */
function nobodys(): Claim {
  const hold = { key: "holdfast-ready", permits: ALL_PERMITS, limit: ALL_PERMITS };
  return { id: newId(), holds: [hold], ttlMs: 30_000, tokens: 1, floor: 0n, wait: false, label: "" };
}
