/**
 * The line of one key in the lock table: admitted places first, then waiting ones by arrival. It keeps the sum of the
 * admitted places, so that one grant costs the same however many wait. What it admits is what `admittedCount` says of
 * the same places (a property test holds them together), except for reclaimed holds, which are held as asserted.
 */

import type { Entry } from "./entry.ts";
import { fits } from "./line.ts";
import { LinkedList } from "./queue.ts";

/** One claim's place in one line. */
export class Seat {
  previous: Seat | null = null;
  next: Seat | null = null;
  admitted = false;
  readonly line: SeatLine;
  readonly entry: Entry;
  readonly permits: number;
  readonly limit: number;
  /** Order among the waiting of this line. */
  readonly arrival: number;
  constructor(line: SeatLine, entry: Entry, permits: number, limit: number, arrival: number) {
    this.line = line;
    this.entry = entry;
    this.permits = permits;
    this.limit = limit;
    this.arrival = arrival;
  }
}

export class SeatLine {
  readonly key: string;
  readonly seats: LinkedList<Seat> = new LinkedList();
  /** The last admitted seat; all before it are admitted, none behind it. */
  frontier: Seat | null = null;
  /** Permits of the admitted seats together. */
  used = 0;
  /** The highest token granted on this key that the table still has to remember; 0 if none. */
  last = 0;
  /** The table has no line of this key any more, or another one. */
  forgotten = false;
  // for the mint's schedule of lines to forget
  dueAt = 0;
  heapIndex = -1;
  constructor(key: string) {
    this.key = key;
  }

  /** Would a claim be admitted at once if it came now? Only if nobody waits and it fits. */
  welcomes(hold: { readonly permits: number; readonly limit: number }): boolean {
    return this.frontier === this.seats.last && fits(this.used, hold);
  }

  /** Puts a seat among the waiting, by arrival. */
  add(seat: Seat): void {
    let before = this.seats.last;
    while (before !== this.frontier && (before as Seat).arrival > seat.arrival) before = (before as Seat).previous;
    this.seats.insertAfter(before, seat);
  }

  /** Puts a seat among the admitted, ordered by its entry's token, without asking the admission rule. */
  addAdmitted(seat: Seat): void {
    let before = this.frontier;
    while (before !== null && before.entry.token > seat.entry.token) before = before.previous;
    this.seats.insertAfter(before, seat);
    if (before === this.frontier) this.frontier = seat;
    seat.admitted = true;
    this.used += seat.permits;
  }

  remove(seat: Seat): void {
    if (seat === this.frontier) this.frontier = seat.previous;
    if (seat.admitted) this.used -= seat.permits;
    this.seats.remove(seat);
  }

  /** Admits this seat if it is the next one and the rule allows it. */
  admit(seat: Seat): boolean {
    if (seat !== this.#next() || !fits(this.used, seat)) return false;
    seat.admitted = true;
    this.used += seat.permits;
    this.frontier = seat;
    return true;
  }

  /** Admits the next seat if the rule allows it, and gives it; null if it must wait or nobody does. */
  admitNext(): Seat | null {
    const next = this.#next();
    return next !== null && this.admit(next) ? next : null;
  }

  #next(): Seat | null {
    return this.frontier === null ? this.seats.first : this.frontier.next;
  }

  /**
   * The admitted seat that must go so that those left could all have been granted, in whatever order: the lowest token of
   * those that are too many; null if all fit. Not in the order of tokens: who takes several keys stands in the first lines
   * before it has its token, and others, with other limits, may have been granted there meanwhile. If any order will do, the
   * least limit first does (Jackson's rule of the earliest due date).
   */
  overfull(): Seat | null {
    let least = this.used;
    for (let seat = this.seats.first; seat?.admitted; seat = seat.next) least = Math.min(least, seat.limit);
    // each of thousands of readers that come back is looked at with all before it
    if (least === this.used) return null;
    const admitted = [...this.seats].filter((seat) => seat.admitted);
    admitted.sort((one, other) => one.limit - other.limit);
    let used = 0;
    let lowest = admitted[0] as Seat;
    for (const seat of admitted) {
      if (seat.entry.token < lowest.entry.token) lowest = seat;
      if (!fits(used, seat)) return lowest;
      used += seat.permits;
    }
    return null;
  }
}
