/**
 * The last events of a server, in order. What is old is overwritten, and so much of it that what is kept stays small:
 * an event keeps its claim's keys alive.
 */

import type { Happening } from "../core/observer.ts";
import type { Claim } from "../spi/driver.ts";

/** What a ring is given of an event. */
export interface Noted {
  readonly claim: Claim;
  /** 0: none. */
  readonly token: number | bigint;
  /** The account that placed it. */
  readonly by?: string;
}

/** Why an operator's event came about. */
export interface Because {
  readonly operator: string;
  readonly reason: string;
}

/** Holds in all events of a ring together, as a multiple of its size. */
const HOLDS_AN_EVENT = 2;

export class Ring {
  readonly size: number;
  readonly #kinds: Happening[] = [];
  readonly #sequence: Float64Array;
  readonly #times: Float64Array;
  readonly #tokens: Float64Array;
  readonly #claims: (Claim | null)[] = [];
  readonly #accounts: string[] = [];
  /** What only few have, by their slots: tokens beyond 2^53, and reasons. */
  readonly #long = new Map<number, bigint>();
  readonly #because = new Map<number, Because>();
  /** Counts all that ever came; the slot is the remainder by size. */
  #next = 0;
  #first = 0;
  #lost = 0;
  #holds = 0;

  constructor(size: number) {
    this.size = size;
    this.#sequence = new Float64Array(size);
    this.#times = new Float64Array(size);
    this.#tokens = new Float64Array(size);
  }

  /** Where the oldest that is kept stands, and one behind the newest. */
  get first(): number {
    return this.#first;
  }

  get next(): number {
    return this.#next;
  }

  /** The number of the newest event that was overwritten; 0: none was. */
  get lost(): number {
    return this.#lost;
  }

  push(kind: Happening, noted: Noted, sequence: number, at: number): void {
    const slot = this.#next % this.size;
    if (this.#next - this.#first === this.size) this.#drop();
    const { claim, token } = noted;
    this.#kinds[slot] = kind;
    this.#sequence[slot] = sequence;
    this.#times[slot] = at;
    this.#claims[slot] = claim;
    this.#accounts[slot] = noted.by ?? "";
    if (typeof token === "number") this.#tokens[slot] = token;
    else this.#setLong(slot, token);
    this.#holds += claim.holds.length;
    this.#next++;
    while (this.#holds > this.size * HOLDS_AN_EVENT && this.#next - this.#first > 1) this.#drop();
  }

  /** Says why the newest came about. */
  explain(because: Because): void {
    if (this.#next > this.#first) this.#because.set((this.#next - 1) % this.size, because);
  }

  sequenceAt(place: number): number {
    return this.#sequence[place % this.size] as number;
  }

  kindAt(place: number): Happening {
    return this.#kinds[place % this.size] as Happening;
  }

  /** On the clock's scale, milliseconds. */
  timeAt(place: number): number {
    return this.#times[place % this.size] as number;
  }

  claimAt(place: number): Claim {
    return this.#claims[place % this.size] as Claim;
  }

  tokenAt(place: number): bigint {
    const slot = place % this.size;
    return this.#long.get(slot) ?? BigInt(this.#tokens[slot] as number);
  }

  accountAt(place: number): string {
    return this.#accounts[place % this.size] as string;
  }

  becauseAt(place: number): Because | undefined {
    return this.#because.get(place % this.size);
  }

  #setLong(slot: number, token: bigint): void {
    this.#tokens[slot] = 0;
    this.#long.set(slot, token);
  }

  /** Forgets the oldest. */
  #drop(): void {
    const slot = this.#first % this.size;
    this.#holds -= (this.#claims[slot] as Claim).holds.length;
    this.#claims[slot] = null;
    this.#lost = this.#sequence[slot] as number;
    if (this.#long.size > 0) this.#long.delete(slot);
    if (this.#because.size > 0) this.#because.delete(slot);
    this.#first++;
  }
}
