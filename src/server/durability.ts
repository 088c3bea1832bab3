/** What must stand on disk before the lock table may do something, or say so (design A.5). */

import type { Clock } from "../clock.ts";
import type { Entry } from "../core/entry.ts";
import type { Table } from "../core/table.ts";
import type { Claim, ClaimId } from "../spi/driver.ts";
import type { Ledger } from "./ledger.ts";
import { AHEAD_MICROS } from "./ledger.ts";
import { savedOf } from "./saved.ts";

/** Leases up to this are "short": a restart waits for them. Longer ones stand in the journal. */
export const SHORT_MS = 60_000;
const RETRY_MS = 1_000;
/** Of a write that failed the disk tells the log (store.ts). */
const ignore = (): void => undefined;

/** Is it longer than what a restart waits for? A session is not: it is told anew. */
export function isLong(ttlMs: number | "session"): boolean {
  return ttlMs !== "session" && ttlMs > SHORT_MS;
}

export class Durability {
  readonly ledger: Ledger;
  readonly #table: Table;
  readonly #clock: Clock;
  /** Journal entries under way. */
  readonly #writing = new Map<ClaimId, Promise<void>>();
  /** Claims that wait for the disk before they may be placed. */
  readonly #placing = new Map<ClaimId, Claim>();
  #raising = false;
  /** When to try again what the disk did not do; Infinity: it did all. */
  #retryAt = Number.POSITIVE_INFINITY;

  /** Called when grants may have become possible outside a call. */
  changed: () => void = () => undefined;

  constructor(ledger: Ledger, table: Table, clock: Clock) {
    this.ledger = ledger;
    this.#table = table;
    this.#clock = clock;
    ledger.failed = () => {
      this.#retryAt = clock.now() + RETRY_MS;
      this.changed();
    };
  }

  get retryAt(): number {
    return this.#retryAt;
  }

  /** What must be written before the claim may be placed; null: nothing. */
  before(claim: Claim, micros: number): Promise<void> | null {
    const { ledger } = this;
    const top = Math.max(this.#table.mint.nextFor(claim), micros) + claim.tokens;
    const lease = shortLease(claim);
    if (top > ledger.bound || lease > ledger.longestMs) {
      this.#placing.set(claim.id, claim);
      return this.#reserve(top + AHEAD_MICROS, lease).finally(() => {
        if (this.#placing.get(claim.id) === claim) this.#placing.delete(claim.id);
      });
    }
    if (top > ledger.bound - AHEAD_MICROS / 2) this.#raise(top + AHEAD_MICROS);
    return null;
  }

  /** The claim that is to be placed as soon as the disk has answered: calls behind it must not take it for gone. */
  placing(id: ClaimId): Claim | undefined {
    return this.#placing.get(id);
  }

  /** What must be written before these reclaimed claims may be taken back; null: nothing. */
  beforeReclaim(claims: readonly { readonly claim: Claim }[]): Promise<void> | null {
    const longest = claims.reduce((most, { claim }) => Math.max(most, shortLease(claim)), 0);
    return longest > this.ledger.longestMs ? this.#reserve(0, longest) : null;
  }

  /** What must be written before the client may be told that it holds; null: nothing. */
  behind(entry: Entry): Promise<void> | null {
    if (!entry.held || !(entry.detached || isLong(entry.claim.ttlMs))) return null;
    const { id } = entry.claim;
    // that it was revoked must stand there, too: else it would come back as it was
    if (this.ledger.has(id, entry.revoked)) return this.#writing.get(id) ?? null;
    return this.write(entry);
  }

  /** Writes an entry into the journal as it stands now. */
  write(entry: Entry): Promise<void> {
    const { id } = entry.claim;
    entry.journaled = true;
    entry.kept = true;
    const written = this.ledger.put(savedOf(entry, this.#clock.now())).finally(() => {
      if (this.#writing.get(id) === written) this.#writing.delete(id);
    });
    this.#writing.set(id, written);
    return written;
  }

  /** Likewise one that was just detached; if that fails it stays what it was, and `undone` makes it its session's again. */
  writeDetached(entry: Entry, undone: () => void): Promise<void> {
    return this.write(entry).catch((error: unknown) => {
      entry.detached = false;
      undone();
      throw error;
    });
  }

  /** A claim of the journal has gone. It must not come back, but nobody waits for that here. */
  forget(entry: Entry): void {
    this.ledger.drop(entry.claim.id).catch(ignore);
  }

  advance(now: number): void {
    if (now < this.#retryAt) return;
    this.#retryAt = Number.POSITIVE_INFINITY;
    if (this.ledger.failing) this.#retry();
  }

  /** Sees to those who have been admitted but wait for the bound of tokens. */
  settle(): void {
    if (this.#raising || this.#retryAt !== Number.POSITIVE_INFINITY) return;
    const wanting = this.#table.wanting;
    if (wanting > 0) this.#raise(wanting + AHEAD_MICROS);
  }

  async #reserve(bound: number, longestMs: number): Promise<void> {
    await this.ledger.reserve(bound, longestMs);
    this.#table.raise(this.ledger.bound);
  }

  /** Nobody may ask for another write: what was given back would come back after a crash, and /ready say no for ever. */
  #retry(): void {
    const raise = (): void => this.#table.raise(this.ledger.bound);
    this.ledger
      .retry()
      .then(raise, ignore)
      .finally(() => this.changed());
  }

  /** Raises the bound ahead of need. */
  #raise(bound: number): void {
    if (this.#raising) return;
    this.#raising = true;
    this.#reserve(bound, 0)
      .catch(ignore)
      .finally(() => {
        this.#raising = false;
        this.changed();
      });
  }
}

/** The lease that a restart would have to wait for. */
function shortLease({ ttlMs }: Claim): number {
  return ttlMs === "session" || ttlMs > SHORT_MS ? 0 : ttlMs;
}
