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

/** Keys in all events of a ring together, as a multiple of its size. */
const KEYS_AN_EVENT = 2;

/** All that can happen. A ring keeps the numbers of kinds, which are their places in here. */
export const KINDS: readonly Happening[] = [
  "waiting",
  "granted",
  "reclaimed",
  "released",
  "left",
  "expired",
  "gone",
  "revoked",
  "outstayed",
  "removed",
];

export class Ring {
  readonly #size: number;
  readonly #mask: number;
  readonly #kinds: Uint8Array;
  readonly #sequence: Float64Array;
  readonly #times: Float64Array;
  readonly #tokens: Float64Array;
  /** Keys of each event, at most 255: to be known without touching a claim of long ago. */
  readonly #keys: Uint8Array;
  readonly #claims: (Claim | null)[];
  readonly #accounts: string[];
  /** What only few have, by their slots: tokens beyond 2^53, and reasons. */
  readonly #long = new Map<number, bigint>();
  readonly #because = new Map<number, Because>();
  /** Counts all that ever came; the slot is the remainder by size. */
  #next = 0;
  #first = 0;
  #lost = 0;
  /** Keys of all events that are kept. */
  #kept = 0;

  /** size: a power of two. */
  constructor(size: number) {
    this.#size = size;
    this.#mask = size - 1;
    this.#kinds = new Uint8Array(size);
    this.#sequence = new Float64Array(size);
    this.#times = new Float64Array(size);
    this.#tokens = new Float64Array(size);
    this.#keys = new Uint8Array(size);
    this.#claims = new Array<Claim | null>(size).fill(null);
    this.#accounts = new Array<string>(size).fill("");
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

  /** kind: its place in KINDS. */
  push(kind: number, noted: Noted, sequence: number, at: number): void {
    if (this.#next - this.#first === this.#size) this.#drop();
    const slot = this.#next & this.#mask;
    const { claim, token, by = "" } = noted;
    const keys = claim.holds.length;
    this.#kinds[slot] = kind;
    this.#sequence[slot] = sequence;
    this.#times[slot] = at;
    this.#keys[slot] = keys;
    this.#claims[slot] = claim;
    // nearly always it is the same, and not to write costs less
    if (this.#accounts[slot] !== by) this.#accounts[slot] = by;
    if (typeof token === "number") this.#tokens[slot] = token;
    else this.#setLong(slot, token);
    this.#kept += keys;
    this.#next++;
    while (this.#kept > this.#size * KEYS_AN_EVENT && this.#next - this.#first > 1) this.#drop();
  }

  /** Says why the newest came about. */
  explain(because: Because): void {
    if (this.#next > this.#first) this.#because.set((this.#next - 1) & this.#mask, because);
  }

  sequenceAt(place: number): number {
    return this.#sequence[place & this.#mask] as number;
  }

  kindAt(place: number): Happening {
    return KINDS[this.#kinds[place & this.#mask] as number] as Happening;
  }

  /** On the clock's scale, milliseconds. */
  timeAt(place: number): number {
    return this.#times[place & this.#mask] as number;
  }

  claimAt(place: number): Claim {
    return this.#claims[place & this.#mask] as Claim;
  }

  tokenAt(place: number): bigint {
    const slot = place & this.#mask;
    return this.#long.get(slot) ?? BigInt(this.#tokens[slot] as number);
  }

  accountAt(place: number): string {
    return this.#accounts[place & this.#mask] as string;
  }

  becauseAt(place: number): Because | undefined {
    return this.#because.get(place & this.#mask);
  }

  #setLong(slot: number, token: bigint): void {
    this.#tokens[slot] = 0;
    this.#long.set(slot, token);
  }

  /** Forgets the oldest; its slot is written anew by the next, or holds no claim any more. */
  #drop(): void {
    const slot = this.#first & this.#mask;
    this.#kept -= this.#keys[slot] as number;
    this.#lost = this.#sequence[slot] as number;
    this.#claims[slot] = null;
    if (this.#long.size > 0) this.#long.delete(slot);
    if (this.#because.size > 0) this.#because.delete(slot);
    this.#first++;
  }
}
