/** What must stand on disk before the lock table may do something, or say so (design A.5). */

import type { Clock } from "../clock.ts";
import type { Entry } from "../core/entry.ts";
import type { Table } from "../core/table.ts";
import type { Answer, Claim, ClaimId } from "../spi/driver.ts";
import type { Ledger } from "./ledger.ts";
import { AHEAD_MICROS } from "./ledger.ts";
import { savedOf } from "./saved.ts";

/** Leases up to this are "short": a restart waits for them. Longer ones stand in the journal. */
export const SHORT_MS = 60_000;
const RETRY_MS = 1_000;
/** Clients that come together may ask for leases of many lengths: the longest of them is written once. */
const LOWER_MS = 1_000;
/** How long answers that need no write wait for one that does and was asked for with them. */
const PATIENCE_MS = 100;
/** Of a write that failed the disk tells the log (store.ts). */
const ignore = (): void => undefined;

/** Is it longer than what a restart waits for? A session is not: it is told anew. */
export function isLong(ttlMs: number | "session"): boolean {
  return ttlMs !== "session" && ttlMs > SHORT_MS;
}

/** The answer at this place, about this entry, may be given when its write is done. */
export interface Behind {
  readonly at: number;
  readonly entry: Entry;
  readonly write: Promise<void>;
}

export class Durability {
  readonly ledger: Ledger;
  readonly #table: Table;
  readonly #clock: Clock;
  /** Journal entries under way. */
  readonly #writing = new Map<ClaimId, Promise<void>>();
  #raising = false;
  /** When to try again what the disk did not do; Infinity: it did all. */
  #retryAt = Number.POSITIVE_INFINITY;
  /** When to write that leases are shorter than was thought; Infinity: they are not. */
  #lowerAt = Number.POSITIVE_INFINITY;

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

  /** When advance() has work. */
  nextDue(): number {
    return Math.min(this.#retryAt, this.#lowerAt);
  }

  /** The claim may be granted, or was already: gives the lease that a restart would have to wait for. */
  asked({ ttlMs }: Claim): number {
    const lease = shortLease(ttlMs, this.#table.sessionMs);
    this.ledger.asked(lease);
    if (this.ledger.waitsTooLong && this.#lowerAt === Number.POSITIVE_INFINITY) {
      this.#lowerAt = this.#clock.now() + LOWER_MS;
    }
    return lease;
  }

  /** What must be written before the claim may be placed; null: nothing. */
  before(claim: Claim, micros: number): Promise<void> | null {
    const { ledger } = this;
    const top = Math.max(this.#table.mint.nextFor(claim), micros) + claim.tokens;
    const lease = this.asked(claim);
    if (top > ledger.bound || lease > ledger.longestMs) {
      // what has its place keeps it, whatever the disk does
      return this.#table.entries.has(claim.id) ? null : this.#reserve(top + AHEAD_MICROS, lease);
    }
    if (top > ledger.bound - AHEAD_MICROS / 2) this.#raise(top + AHEAD_MICROS);
    return null;
  }

  /** What must be written before these reclaimed claims may be taken back; null: nothing. */
  beforeReclaim(claims: readonly { readonly claim: Claim }[]): Promise<void> | null {
    const longest = claims.reduce((most, { claim }) => Math.max(most, this.asked(claim)), 0);
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

  /** The answer, if it is still so now that a write is done: meanwhile the claim may have ended, or been taken away. */
  still(answer: Answer, entry: Entry): Answer {
    const { entries, endings } = this.#table;
    const { id } = entry.claim;
    if (entries.get(id) !== entry) return endings.none(id);
    if (entry.revoked !== null) return { state: "none", reason: entry.revoked };
    return entry.expiresAt > this.#clock.now() ? answer : { state: "none", reason: "expired" };
  }

  /**
   * Answers, some of them behind writes. Those that are behind none do not wait for long, nor fail with the others:
   * undefined stands then for what is not written.
   */
  async answers(
    answers: readonly (Answer | undefined)[],
    behind: readonly Behind[],
  ): Promise<readonly (Answer | undefined)[]> {
    const written = new Set<Behind>();
    const writes = behind.map((one) => one.write.then(() => written.add(one)));
    if (behind.length === answers.length) await Promise.all(writes);
    else await this.#patience(writes);
    const told = [...answers];
    for (const one of behind) {
      told[one.at] = written.has(one) ? this.still(answers[one.at] as Answer, one.entry) : undefined;
    }
    return told;
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

  /** Likewise one that was just detached; if that fails it stays what it was: `undone` makes it its session's again. */
  async writeDetached(entry: Entry, undone: () => void): Promise<void> {
    // detached once more, by a client that has not heard the answer: that it is stands, whatever this write would do
    if (this.ledger.hasDetached(entry.claim.id)) return this.#writing.get(entry.claim.id);
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
    if (now >= this.#lowerAt) {
      this.#lowerAt = Number.POSITIVE_INFINITY;
      this.ledger.lower();
    }
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

  async #patience(writes: readonly Promise<unknown>[]): Promise<void> {
    let wake = (): void => undefined;
    const woken = new Promise<void>((resolve) => {
      wake = resolve;
    });
    const timer = this.#clock.timer(wake);
    timer.set(this.#clock.now() + PATIENCE_MS);
    await Promise.race([Promise.allSettled(writes), woken]);
    timer.stop();
  }

  async #reserve(bound: number, longestMs: number): Promise<void> {
    await this.ledger.reserve(bound, longestMs);
    this.#table.raise(this.ledger.bound);
  }

  /** Nobody may ask for another write: what was given back would come back after a crash, and /ready say no for ever. */
  #retry(): void {
    this.ledger
      .retry()
      .catch(ignore)
      .finally(() => {
        // also if only the journal could not be written
        this.#table.raise(this.ledger.bound);
        this.changed();
      });
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

/** The lease that a restart would have to wait for: of a session, how long it lasts in silence. */
export function shortLease(ttlMs: number | "session", sessionMs: number): number {
  if (ttlMs === "session") return sessionMs;
  return isLong(ttlMs) ? 0 : ttlMs;
}
