/**
 * A ring of the last events of a server, in order. Old events are overwritten early enough that the total number of
 * keys stays small: an event keeps its claim's keys alive.
 */

import type { EventKind } from "../../lock-table/events.ts";
import type { Claim } from "../../spi/driver.ts";

/** The data of an event. */
export interface RingEntry {
  readonly claim: Claim;
  /** 0: none. */
  readonly token: number | bigint;
  /** The account that created the claim. */
  readonly account?: string;
}

/** Who caused an administrative event, and why. */
export interface AuditDetails {
  readonly operator: string;
  readonly reason: string;
}

/** Maximum number of keys in all events of a ring, as a multiple of its capacity. */
const KEYS_PER_EVENT = 2;

/** All kinds of events. A ring stores a kind as its index in this list. */
export const EVENT_KINDS: readonly EventKind[] = [
  "waiting",
  "granted",
  "reclaimed",
  "released",
  "withdrawn",
  "expired",
  "disconnected",
  "revoked",
  "maxHoldExceeded",
  "removed",
];

export class EventRing {
  readonly #capacity: number;
  readonly #mask: number;
  readonly #kinds: Uint8Array;
  readonly #sequences: Float64Array;
  readonly #times: Float64Array;
  readonly #tokens: Float64Array;
  /** Number of keys of each event, at most 255: known without touching an old claim object. */
  readonly #keyCounts: Uint8Array;
  readonly #claims: (Claim | null)[];
  readonly #accounts: string[];
  /** Rare data by slot: tokens above 2^53, and reasons. */
  readonly #bigTokens = new Map<number, bigint>();
  readonly #auditDetails = new Map<number, AuditDetails>();
  /** Counts all events ever recorded; the slot is the remainder by the capacity. */
  #next = 0;
  #first = 0;
  #lastDropped = 0;
  /** Number of keys of all events that are kept. */
  #keyCount = 0;

  /** capacity: a power of two. */
  constructor(capacity: number) {
    this.#capacity = capacity;
    this.#mask = capacity - 1;
    this.#kinds = new Uint8Array(capacity);
    this.#sequences = new Float64Array(capacity);
    this.#times = new Float64Array(capacity);
    this.#tokens = new Float64Array(capacity);
    this.#keyCounts = new Uint8Array(capacity);
    this.#claims = new Array<Claim | null>(capacity).fill(null);
    this.#accounts = new Array<string>(capacity).fill("");
  }

  /** Index of the oldest event that is kept. */
  get first(): number {
    return this.#first;
  }

  get next(): number {
    return this.#next;
  }

  /** The sequence number of the newest overwritten event; 0: none. */
  get lastDropped(): number {
    return this.#lastDropped;
  }

  /** kind: its index in EVENT_KINDS. */
  push(kind: number, entry: RingEntry, sequence: number, time: number): void {
    if (this.#next - this.#first === this.#capacity) this.#dropOldest();
    const slot = this.#next & this.#mask;
    const { claim, token, account = "" } = entry;
    const keyCount = claim.locks.length;
    this.#kinds[slot] = kind;
    this.#sequences[slot] = sequence;
    this.#times[slot] = time;
    this.#keyCounts[slot] = keyCount;
    this.#claims[slot] = claim;
    // usually unchanged, and a comparison is cheaper than a write
    if (this.#accounts[slot] !== account) this.#accounts[slot] = account;
    if (typeof token === "number") this.#tokens[slot] = token;
    else this.#setBigToken(slot, token);
    this.#keyCount += keyCount;
    this.#next++;
    while (this.#keyCount > this.#capacity * KEYS_PER_EVENT && this.#next - this.#first > 1) this.#dropOldest();
  }

  /** Adds the operator and the reason to the newest event. */
  annotateLast(details: AuditDetails): void {
    if (this.#next > this.#first) this.#auditDetails.set((this.#next - 1) & this.#mask, details);
  }

  sequenceAt(index: number): number {
    return this.#sequences[index & this.#mask] as number;
  }

  kindAt(index: number): EventKind {
    return EVENT_KINDS[this.#kinds[index & this.#mask] as number] as EventKind;
  }

  /** Monotonic milliseconds of the clock. */
  timeAt(index: number): number {
    return this.#times[index & this.#mask] as number;
  }

  claimAt(index: number): Claim {
    return this.#claims[index & this.#mask] as Claim;
  }

  tokenAt(index: number): bigint {
    const slot = index & this.#mask;
    return this.#bigTokens.get(slot) ?? BigInt(this.#tokens[slot] as number);
  }

  accountAt(index: number): string {
    return this.#accounts[index & this.#mask] as string;
  }

  auditDetailsAt(index: number): AuditDetails | undefined {
    return this.#auditDetails.get(index & this.#mask);
  }

  #setBigToken(slot: number, token: bigint): void {
    this.#tokens[slot] = 0;
    this.#bigTokens.set(slot, token);
  }

  /** Drops the oldest event; its slot is overwritten by the next one, or keeps no claim. */
  #dropOldest(): void {
    const slot = this.#first & this.#mask;
    this.#keyCount -= this.#keyCounts[slot] as number;
    this.#lastDropped = this.#sequences[slot] as number;
    this.#claims[slot] = null;
    if (this.#bigTokens.size > 0) this.#bigTokens.delete(slot);
    if (this.#auditDetails.size > 0) this.#auditDetails.delete(slot);
    this.#first++;
  }
}
