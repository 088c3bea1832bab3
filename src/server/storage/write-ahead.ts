/** What must stand on disk before the lock table may do something, or say so (design A.5). */

import type { ClaimRecord } from "../../lock-table/claim-record.ts";
import type { LockTable } from "../../lock-table/table.ts";
import type { Answer, Claim, ClaimId } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import { toSavedClaim } from "../local/snapshot.ts";
import type { DurableLog } from "./durable-log.ts";
import { CEILING_LEAD_MICROS } from "./durable-log.ts";

/** Leases up to this are "short": a restart waits for them. Longer ones stand in the journal. */
export const MAX_UNJOURNALED_MS = 60_000;
const RETRY_MS = 1_000;
/** Clients that come together may ask for leases of many lengths: the longest of them is written once. */
const LOWER_DELAY_MS = 1_000;
/** How long answers that need no write wait for one that does and was asked for with them. */
const MAX_ANSWER_DELAY_MS = 100;
/** Of a write that failed the disk tells the log (open-backend.ts). */
const ignore = (): void => undefined;

/** Is it longer than what a restart waits for? A session is not: it is told anew. */
export function needsJournal(ttlMs: number | "session"): boolean {
  return ttlMs !== "session" && ttlMs > MAX_UNJOURNALED_MS;
}

/** The answer at this place, about this entry, may be given when its write is done. */
export interface PendingWrite {
  readonly index: number;
  readonly record: ClaimRecord;
  readonly write: Promise<void>;
}

export class WriteAhead {
  readonly durableLog: DurableLog;
  readonly #table: LockTable;
  readonly #clock: Clock;
  /** Journal entries under way. */
  readonly #writes = new Map<ClaimId, Promise<void>>();
  #isRaisingCeiling = false;
  /** When to try again what the disk did not do; Infinity: it did all. */
  #retryAt = Number.POSITIVE_INFINITY;
  /** When to write that leases are shorter than was thought; Infinity: they are not. */
  #lowerAt = Number.POSITIVE_INFINITY;

  /** Called when grants may have become possible outside a call. */
  onChange: () => void = () => undefined;

  constructor(durableLog: DurableLog, table: LockTable, clock: Clock) {
    this.durableLog = durableLog;
    this.#table = table;
    this.#clock = clock;
    durableLog.onFailure = () => {
      this.#retryAt = clock.now() + RETRY_MS;
      this.onChange();
    };
  }

  /** When advance() has work. */
  nextDueAt(): number {
    return Math.min(this.#retryAt, this.#lowerAt);
  }

  /** The claim may be granted, or was already: gives the lease that a restart would have to wait for. */
  recordLease({ ttlMs }: Claim): number {
    const lease = unjournaledLeaseMs(ttlMs, this.#table.sessionMs);
    this.durableLog.recordLease(lease);
    if (this.durableLog.hasOverlongLease && this.#lowerAt === Number.POSITIVE_INFINITY) {
      this.#lowerAt = this.#clock.now() + LOWER_DELAY_MS;
    }
    return lease;
  }

  /** What must be written before the claim may be placed; null: nothing. */
  reserveFor(claim: Claim, micros: number): Promise<void> | null {
    const { durableLog } = this;
    const highestToken = Math.max(this.#table.tokenIssuer.peekNext(claim), micros) + claim.tokens;
    const lease = this.recordLease(claim);
    if (highestToken > durableLog.ceiling || lease > durableLog.longestLeaseMs) {
      // what has its place keeps it, whatever the disk does
      return this.#table.records.has(claim.id) ? null : this.#reserve(highestToken + CEILING_LEAD_MICROS, lease);
    }
    if (highestToken > durableLog.ceiling - CEILING_LEAD_MICROS / 2)
      this.#raiseCeiling(highestToken + CEILING_LEAD_MICROS);
    return null;
  }

  /** What must be written before these reclaimed claims may be taken back; null: nothing. */
  reserveForReclaim(claims: readonly { readonly claim: Claim }[]): Promise<void> | null {
    const longest = claims.reduce((longestSoFar, { claim }) => Math.max(longestSoFar, this.recordLease(claim)), 0);
    return longest > this.durableLog.longestLeaseMs ? this.#reserve(0, longest) : null;
  }

  /** What must be written before the client may be told that it holds; null: nothing. */
  writeBeforeGrant(record: ClaimRecord): Promise<void> | null {
    if (!record.isHeld || !(record.isDetached || needsJournal(record.claim.ttlMs))) return null;
    const { id } = record.claim;
    // that it was revoked must stand there, too: else it would come back as it was
    if (this.durableLog.has(id, record.revokeReason)) return this.#writes.get(id) ?? null;
    return this.write(record);
  }

  /** The answer, if it is still so now that a write is done: meanwhile the claim may have ended, or been taken away. */
  confirmAnswer(answer: Answer, record: ClaimRecord): Answer {
    const { records, tombstones } = this.#table;
    const { id } = record.claim;
    if (records.get(id) !== record) return tombstones.noneAnswer(id);
    if (record.revokeReason !== null) return { state: "none", reason: record.revokeReason };
    return record.expiresAt > this.#clock.now() ? answer : { state: "none", reason: "expired" };
  }

  /**
   * Answers, some of them behind writes. Those that are behind none do not wait for long, nor fail with the others:
   * undefined stands then for what is not written.
   */
  async waitForWrites(
    answers: readonly (Answer | undefined)[],
    pendingWrites: readonly PendingWrite[],
  ): Promise<readonly (Answer | undefined)[]> {
    const written = new Set<PendingWrite>();
    const writes = pendingWrites.map((pending) => pending.write.then(() => written.add(pending)));
    if (pendingWrites.length === answers.length) await Promise.all(writes);
    else await this.#waitBriefly(writes);
    const confirmed = [...answers];
    for (const pending of pendingWrites) {
      confirmed[pending.index] = written.has(pending)
        ? this.confirmAnswer(answers[pending.index] as Answer, pending.record)
        : undefined;
    }
    return confirmed;
  }

  /** Writes an entry into the journal as it stands now. */
  write(record: ClaimRecord): Promise<void> {
    const { id } = record.claim;
    record.isJournaled = true;
    record.notifyOnRemoval = true;
    const written = this.durableLog.put(toSavedClaim(record, this.#clock.now())).finally(() => {
      if (this.#writes.get(id) === written) this.#writes.delete(id);
    });
    this.#writes.set(id, written);
    return written;
  }

  /** Likewise one that was just detached; if that fails it stays what it was: `restoreOwner` makes it its session's again. */
  async writeDetached(record: ClaimRecord, restoreOwner: () => void): Promise<void> {
    // detached once more, by a client that has not heard the answer: that it is stands, whatever this write would do
    if (this.durableLog.hasDetached(record.claim.id)) return this.#writes.get(record.claim.id);
    return this.write(record).catch((error: unknown) => {
      record.isDetached = false;
      restoreOwner();
      throw error;
    });
  }

  /** A claim of the journal has gone. It must not come back, but nobody waits for that here. */
  removeFromJournal(record: ClaimRecord): void {
    this.durableLog.drop(record.claim.id).catch(ignore);
  }

  advance(now: number): void {
    if (now >= this.#lowerAt) {
      this.#lowerAt = Number.POSITIVE_INFINITY;
      this.durableLog.lowerLease();
    }
    if (now < this.#retryAt) return;
    this.#retryAt = Number.POSITIVE_INFINITY;
    if (this.durableLog.isFailing) this.#retry();
  }

  /** Sees to those who have been admitted but wait for the bound of tokens. */
  raiseCeilingIfNeeded(): void {
    if (this.#isRaisingCeiling || this.#retryAt !== Number.POSITIVE_INFINITY) return;
    const requiredCeiling = this.#table.requiredTokenCeiling;
    if (requiredCeiling > 0) this.#raiseCeiling(requiredCeiling + CEILING_LEAD_MICROS);
  }

  async #waitBriefly(writes: readonly Promise<unknown>[]): Promise<void> {
    let wake = (): void => undefined;
    const woken = new Promise<void>((resolve) => {
      wake = resolve;
    });
    const timer = this.#clock.timer(wake);
    timer.set(this.#clock.now() + MAX_ANSWER_DELAY_MS);
    await Promise.race([Promise.allSettled(writes), woken]);
    timer.stop();
  }

  async #reserve(ceiling: number, longestMs: number): Promise<void> {
    await this.durableLog.reserve(ceiling, longestMs);
    this.#table.raiseTokenCeiling(this.durableLog.ceiling);
  }

  /** Nobody may ask for another write: what was given back would come back after a crash, and /ready say no for ever. */
  #retry(): void {
    this.durableLog
      .retry()
      .catch(ignore)
      .finally(() => {
        // also if only the journal could not be written
        this.#table.raiseTokenCeiling(this.durableLog.ceiling);
        this.onChange();
      });
  }

  /** Raises the bound ahead of need. */
  #raiseCeiling(ceiling: number): void {
    if (this.#isRaisingCeiling) return;
    this.#isRaisingCeiling = true;
    this.#reserve(ceiling, 0)
      .catch(ignore)
      .finally(() => {
        this.#isRaisingCeiling = false;
        this.onChange();
      });
  }
}

/** The lease that a restart would have to wait for: of a session, how long it lasts in silence. */
export function unjournaledLeaseMs(ttlMs: number | "session", sessionMs: number): number {
  if (ttlMs === "session") return sessionMs;
  return needsJournal(ttlMs) ? 0 : ttlMs;
}
