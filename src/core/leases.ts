/** When the claims of a table run out. "session" claims never do. */

import type { Entry } from "./entry.ts";
import { Schedule } from "./schedule.ts";

/** Most claims outside the schedule: as many go into it at once in less than a millisecond. */
const MOST_FRESH = 4_096;

export class Leases {
  readonly #due = new Schedule<Entry>();
  /** In no order, each at its heapIndex: most claims are released long before they run out, and never see the schedule. */
  readonly #fresh: Entry[] = [];
  /** Before this none of the fresh runs out. */
  #freshUntil = Number.POSITIVE_INFINITY;

  add(entry: Entry): void {
    const { expiresAt } = entry;
    if (expiresAt === Number.POSITIVE_INFINITY) return;
    if (this.#fresh.length === MOST_FRESH) return this.#due.set(entry, expiresAt);
    entry.heapIndex = this.#fresh.length;
    this.#fresh.push(entry);
    if (expiresAt < this.#freshUntil) this.#freshUntil = expiresAt;
  }

  remove(entry: Entry): void {
    const place = entry.heapIndex;
    if (this.#fresh[place] !== entry) return this.#due.remove(entry);
    entry.heapIndex = -1;
    const last = this.#fresh.pop() as Entry;
    if (this.#fresh.length === 0) this.#freshUntil = Number.POSITIVE_INFINITY;
    if (last === entry) return;
    this.#fresh[place] = last;
    last.heapIndex = place;
  }

  /** Restarts a lease. Its place in the schedule stays as it is: takeExpired() puts back who comes up too early. */
  extend(entry: Entry, now: number): void {
    if (entry.claim.ttlMs !== "session") entry.expiresAt = now + entry.claim.ttlMs;
  }

  /** Lets a lease end at `until`, unless it ends before. Unlike a later end, an earlier one moves it in the schedule. */
  shorten(entry: Entry, until: number): void {
    if (until >= entry.expiresAt) return;
    this.remove(entry);
    entry.expiresAt = until;
    this.add(entry);
  }

  /** Takes out and gives the next claim that has run out at `now`, or null. */
  takeExpired(now: number): Entry | null {
    if (now >= this.#freshUntil) this.#order();
    for (let entry = this.#due.takeDue(now); entry !== null; entry = this.#due.takeDue(now)) {
      if (entry.expiresAt <= now) return entry;
      this.#due.set(entry, entry.expiresAt);
    }
    return null;
  }

  /** When takeExpired() may have work, or null. May be early. */
  next(): number | null {
    const next = Math.min(this.#due.next() ?? Number.POSITIVE_INFINITY, this.#freshUntil);
    return next === Number.POSITIVE_INFINITY ? null : next;
  }

  /** Puts those that are still there into the schedule. */
  #order(): void {
    for (const entry of this.#fresh) {
      entry.heapIndex = -1;
      this.#due.set(entry, entry.expiresAt);
    }
    this.#fresh.length = 0;
    this.#freshUntil = Number.POSITIVE_INFINITY;
  }
}
