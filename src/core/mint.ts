/**
 * Fencing tokens of one table (design A.2): token = max(last + 1, floor, clock), where the clock is the wall clock in
 * microseconds as far as it has ever been seen, so it never goes back while the table lives.
 *
 * Invariant: every token lies above all tokens granted before on its keys. A line remembers its last token only until
 * the clock has passed it; after that every token of the clock lies above it anyway. So an idle key leaves nothing.
 * Numbers here stay below 2^53 until the year 2255.
 */

import type { Claim } from "../spi/driver.ts";
import type { Entry } from "./entry.ts";
import { Schedule } from "./schedule.ts";
import { SeatLine } from "./seats.ts";
import { SlotMap } from "./slot-map.ts";

/** A floor further ahead of the clock than this is refused: it would end the key's tokens for ever. */
const DAY_MICROS = 86_400_000_000;

/** The lines of a table by key, and the tokens granted in them. */
export class Mint {
  readonly lines: SlotMap<string, SeatLine> = new SlotMap();
  /** Lines that became empty before the clock had passed their last token, due at that token. Each stands here once. */
  readonly #lingering = new Schedule<SeatLine>();
  #clock = 0;
  /** Tokens stay below it. */
  ceiling: number;

  constructor(ceiling: number) {
    this.ceiling = ceiling;
  }

  /** Are idle lines still remembered for their last token? */
  get lingers(): boolean {
    return this.#lingering.next() !== null;
  }

  get clock(): number {
    return this.#clock;
  }

  /** Moves the clock on, and forgets the lines it has passed. */
  advance(micros: number): void {
    if (micros <= this.#clock) return;
    this.#clock = micros;
    if (!this.lingers) return;
    for (let line = this.#lingering.takeDue(micros - 1); line !== null; line = this.#lingering.takeDue(micros - 1)) {
      this.leave(line);
    }
  }

  /** The line of a key, made if need be. */
  line(key: string): SeatLine {
    let line = this.lines.get(key);
    if (line === undefined) {
      line = new SeatLine(key);
      this.lines.add(key, line);
    }
    return line;
  }

  /** Forgets an empty line, now or as soon as the clock has passed its last token. */
  leave(line: SeatLine): void {
    if (line.seats.size > 0 || line.forgotten) return;
    if (line.last < this.#clock) {
      line.forgotten = true;
      this.#lingering.remove(line);
      this.lines.delete(line.key);
    } else this.#lingering.set(line, line.last);
  }

  /** Could a token at this floor be granted? */
  reaches(floor: bigint, micros: number): boolean {
    return floor === 0n || Number(floor) <= Math.max(this.#clock, micros) + DAY_MICROS;
  }

  /** The first token that may be granted to this claim now. */
  nextFor(claim: Claim): number {
    let token = Math.max(this.#clock, Number(claim.floor));
    for (const { key } of claim.holds) token = Math.max(token, (this.lines.get(key)?.last ?? 0) + 1);
    return token;
  }

  /** Sets a run aside for a claim that has a seat in each of its lines; null if it would reach the ceiling. */
  take({ claim, seats }: Entry): number | null {
    let token = Math.max(this.#clock, Number(claim.floor));
    for (const { line } of seats) if (line.last >= token) token = line.last + 1;
    if (token + claim.tokens > this.ceiling) return null;
    for (const { line } of seats) line.last = token + claim.tokens - 1;
    return token;
  }

  /** Tokens up to this one have been granted on the claim's keys. */
  spent(claim: Claim, last: number): void {
    for (const { key } of claim.holds) {
      const line = this.line(key);
      line.last = Math.max(line.last, last);
    }
  }
}
