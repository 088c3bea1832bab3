/**
 * The line of one key in the lock table: admitted places first, then waiting ones by arrival. It keeps the sum of the
 * admitted places, so that one grant costs the same however many wait. What it admits is what `admittedCount` says of
 * the same places (a property test holds them together), except for reclaimed holds, which are held as asserted.
 */

import type { Entry } from "./entry.ts";
import { Holders } from "./holders.ts";
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
  /** No admitted seat has a lower limit; one that is gone may have had it. */
  #leastLimit = Number.POSITIVE_INFINITY;
  /** Made when it is asked for the first time: of most lines nobody asks, and it would cost each grant. */
  #holders: Holders | null = null;
  constructor(key: string) {
    this.key = key;
  }

  /** Who holds the key with this token, which may be any of its run; null: nobody does. */
  holderOf(token: number): Entry | null {
    if (this.#holders === null) {
      this.#holders = new Holders();
      for (let seat = this.seats.first; seat?.admitted; seat = seat.next) {
        if (seat.entry.held) this.#holders.add(seat.entry);
      }
    }
    return this.#holders.find(token);
  }

  /** A claim that is admitted here has its tokens now. */
  granted(entry: Entry): void {
    this.#holders?.add(entry);
  }

  /** A holder was revoked, and keeps its place. */
  revoked(entry: Entry): void {
    this.#holders?.revoked(entry);
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
    this.#admitted(seat);
  }

  remove(seat: Seat): void {
    if (seat === this.frontier) this.frontier = seat.previous;
    if (seat.admitted) {
      this.used -= seat.permits;
      this.#holders?.remove(seat.entry);
    }
    this.seats.remove(seat);
  }

  /** Admits this seat if it is the next one and the rule allows it. */
  admit(seat: Seat): boolean {
    if (seat !== this.#next() || !fits(this.used, seat)) return false;
    this.frontier = seat;
    this.#admitted(seat);
    return true;
  }

  /** Admits the next seat if the rule allows it, and gives it; null if it must wait or nobody does. */
  admitNext(): Seat | null {
    const next = this.#next();
    return next !== null && this.admit(next) ? next : null;
  }

  #admitted(seat: Seat): void {
    seat.admitted = true;
    this.used += seat.permits;
    if (seat.limit < this.#leastLimit) this.#leastLimit = seat.limit;
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
    // thousands of readers that come back are not looked through for each of them
    if (this.used <= this.#leastLimit) return null;
    let least = Number.POSITIVE_INFINITY;
    for (let seat = this.seats.first; seat?.admitted; seat = seat.next) least = Math.min(least, seat.limit);
    this.#leastLimit = least;
    if (this.used <= least) return null;
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
