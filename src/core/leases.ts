/** When the claims of a table run out. "session" claims never do. */

import type { Entry } from "./entry.ts";
import { Schedule } from "./schedule.ts";

export class Leases {
  readonly #due = new Schedule<Entry>();

  add(entry: Entry): void {
    if (entry.expiresAt !== Number.POSITIVE_INFINITY) this.#due.set(entry, entry.expiresAt);
  }

  remove(entry: Entry): void {
    this.#due.remove(entry);
  }

  /** Restarts a lease. Its place in the schedule stays as it is: takeExpired() puts back who comes up too early. */
  extend(entry: Entry, now: number): void {
    if (entry.claim.ttlMs !== "session") entry.expiresAt = now + entry.claim.ttlMs;
  }

  /** Takes out and gives the next claim that has run out at `now`, or null. */
  takeExpired(now: number): Entry | null {
    for (let entry = this.#due.takeDue(now); entry !== null; entry = this.#due.takeDue(now)) {
      if (entry.expiresAt <= now) return entry;
      this.#due.set(entry, entry.expiresAt);
    }
    return null;
  }

  /** When takeExpired() may give something, or null. May be early. */
  next(): number | null {
    return this.#due.next();
  }
}
