/**
 * Who of a lock table is admitted and granted: places enter the lines of their keys one after another, and whoever is
 * admitted in its last line gets its tokens.
 *
 *   seated    it stands in some of its lines, admitted in all but the last
 *   stalled   admitted everywhere, but its tokens would reach the ceiling
 *   granted   it has its tokens
 */

import type { Claim } from "../spi/driver.ts";
import type { Entry } from "./entry.ts";
import { fits } from "./line.ts";
import { Mint } from "./mint.ts";
import type { Observer } from "./observer.ts";
import type { SeatLine } from "./seats.ts";
import { Seat } from "./seats.ts";

export class Seating {
  readonly mint: Mint;
  readonly #observer: Observer;
  readonly #stalled = new Set<Entry>();
  /** Told of grants to claims that had to wait. */
  readonly #announce: (entry: Entry) => void;
  #arrivals = 0;
  #now = 0;
  #paused = false;

  constructor(ceiling: number, observer: Observer, announce: (entry: Entry) => void) {
    this.mint = new Mint(ceiling);
    this.#observer = observer;
    this.#announce = announce;
  }

  advance(now: number, micros: number): void {
    this.#now = now;
    this.mint.advance(micros);
  }

  /** Would the claim be admitted everywhere if it came now? */
  isFree(claim: Claim): boolean {
    return !this.#paused && claim.holds.every((hold) => this.mint.lines.get(hold.key)?.welcomes(hold) ?? true);
  }

  /** Would the claim fit beside those who hold its keys, whoever waits? */
  fits(claim: Claim): boolean {
    return claim.holds.every((hold) => fits(this.mint.lines.get(hold.key)?.used ?? 0, hold));
  }

  /** The number of the next to come; `arrival`: of one who came before a restart, or 0. */
  arrive(arrival: number): number {
    this.#arrivals = Math.max(this.#arrivals + 1, this.mint.clock, arrival);
    return arrival || this.#arrivals;
  }

  /** Enters the claim's next lines, one after another, as far as it is admitted; grants it at the end. */
  enter(entry: Entry): void {
    const { holds } = entry.claim;
    while (entry.seats.length < holds.length) {
      const first = entry.seats.length === 0;
      const hold = holds[entry.seats.length] as (typeof holds)[number];
      const line = this.mint.line(hold.key);
      const seat = new Seat(line, entry, hold.permits, hold.limit, first ? entry.arrival : ++this.#arrivals);
      entry.sit(seat);
      line.add(seat);
      // only this seat: another that may go now is led on by whoever made room (#admit), not here
      if (this.#paused || !line.admit(seat)) return;
    }
    this.#grant(entry);
  }

  /** Seats a claim in all its lines as held, with these tokens, without asking the admission rule. */
  enterHeld(entry: Entry, token: number, tokens: number): void {
    const { claim } = entry;
    entry.token = token;
    entry.tokens = tokens;
    entry.heldAt = this.#now;
    this.mint.spent(claim, token + tokens - 1);
    for (const hold of claim.holds) {
      const seat = new Seat(this.mint.line(hold.key), entry, hold.permits, hold.limit, entry.arrival);
      entry.sit(seat);
      seat.line.addAdmitted(seat);
      seat.line.granted(entry);
    }
    this.#observer.happened("reclaimed", entry, this.#now);
  }

  /** Takes a claim out of its lines; admitBehind() must follow. */
  leave(entry: Entry): void {
    this.#stalled.delete(entry);
    for (const seat of entry.seats) {
      if (seat.admitted || !entry.parked) seat.line.remove(seat); // a parked seat has left its line already
    }
  }

  /** Admits whoever may go in the lines that a claim has left. */
  admitBehind(entry: Entry): void {
    for (const { line } of entry.seats) this.#admit(line);
  }

  /** Takes a waiting place out of its line, so that grants pass over it. */
  park(entry: Entry): void {
    const seat = entry.seats.at(-1);
    if (seat === undefined || seat.admitted || entry.parked) return;
    entry.parked = true;
    seat.line.remove(seat);
    this.#admit(seat.line);
  }

  /** Puts a parked place where its arrival says. */
  unpark(entry: Entry): void {
    if (!entry.parked) return;
    entry.parked = false;
    const old = entry.seats.at(-1) as Seat;
    const seat = new Seat(this.mint.line(old.line.key), entry, old.permits, old.limit, old.arrival);
    entry.seats = entry.seats.with(-1, seat);
    seat.line.add(seat);
    this.#admit(seat.line);
  }

  /** Tokens up to (not including) this may be granted from now on. */
  raise(ceiling: number): void {
    this.mint.ceiling = ceiling;
    if (this.#paused) return; // resume() sees to them
    for (const entry of [...this.#stalled]) {
      this.#stalled.delete(entry);
      this.#grant(entry);
      if (entry.held) this.#announce(entry);
    }
  }

  /** The ceiling that the stalled need; 0: there are none. */
  get wanting(): number {
    let ceiling = 0;
    for (const { claim } of this.#stalled) ceiling = Math.max(ceiling, this.mint.nextFor(claim) + claim.tokens);
    return ceiling;
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.raise(this.mint.ceiling);
    for (const line of this.mint.lines.values()) this.#admit(line);
  }

  /** Admits whoever may go in this line, and leads each on to its next lines. */
  #admit(line: SeatLine): void {
    for (let seat = this.#paused ? null : line.admitNext(); seat !== null; seat = line.admitNext()) {
      this.enter(seat.entry);
      if (seat.entry.held) this.#announce(seat.entry);
    }
    this.mint.leave(line);
  }

  #grant(entry: Entry): void {
    const token = this.mint.take(entry);
    if (token === null) {
      this.#stalled.add(entry);
      return;
    }
    entry.token = token;
    entry.tokens = entry.claim.tokens;
    entry.heldAt = this.#now;
    for (const { line } of entry.seats) line.granted(entry);
    this.#observer.happened("granted", entry, this.#now);
  }
}
