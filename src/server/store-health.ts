/**
 * Whether the store behind a relay answers, and what the log has of it. A client's call that was answered says yes. One that failed says nothing, since
 * the call itself may be at fault; then, and where there was none lately, a call of our own that changes nothing tells.
 * The store is asked only when somebody wants to know.
 */

import type { Clock } from "../clock.ts";
import { newId } from "../ids.ts";
import type { Claim, Driver } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import type { Log } from "./logging.ts";

/** So old may be what is known. */
const FRESH_MS = 2_000;
/** A store that has not answered for so long does not answer. */
const LATE_MS = 3_000;
/** An outage is over when the store answers so long after the last call that failed. */
const CALM_MS = 1_000;

/** Calls that fail one after the other, or among others that do not. */
interface Outage {
  readonly since: number;
  failedAt: number;
  calls: number;
}

export class StoreHealth {
  readonly #driver: Driver;
  readonly #clock: Clock;
  readonly #log: Log;
  #outage: Outage | null = null;
  #answers = true;
  #heardAt: number;
  /** When our own call that is under way was made; null: none is. */
  #askedAt: number | null = null;

  constructor(driver: Driver, clock: Clock, log: Log) {
    this.#driver = driver;
    this.#clock = clock;
    this.#log = log;
    this.#heardAt = clock.now();
  }

  answered(): void {
    this.#answers = true;
    this.#heardAt = this.#clock.now();
    if (this.#outage !== null) this.#endOutage(this.#outage);
  }

  /** A call has failed, through no fault of its own. The log has the first one, and at the end how many there were. */
  failed(error: unknown): void {
    this.doubt();
    const now = this.#clock.now();
    if (this.#outage === null) this.#log(`${this.#driver.name} failed`, error);
    this.#outage ??= { since: now, failedAt: now, calls: 0 };
    this.#outage.failedAt = now;
    this.#outage.calls++;
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

  #endOutage({ since, failedAt, calls }: Outage): void {
    const now = this.#clock.now();
    if (now - failedAt < CALM_MS) return;
    this.#outage = null;
    this.#log(`${this.#driver.name} answers again`, undefined, { calls, ms: Math.round(now - since) });
  }

  #ask(now: number): void {
    this.#askedAt = now;
    this.#driver.renew([nobodys()]).then(
      () => {
        this.#askedAt = null;
        this.answered();
      },
      () => {
        this.#askedAt = null;
        this.#answers = false;
        this.#heardAt = this.#clock.now();
      },
    );
  }
}

/** A claim that was never placed: the store knows nothing of it. */
function nobodys(): Claim {
  const hold = { key: "holdfast-ready", permits: ALL_PERMITS, limit: ALL_PERMITS };
  return { id: newId(), holds: [hold], ttlMs: 30_000, tokens: 1, floor: 0n, wait: false, label: "" };
}
