/** What must be on disk before the lock table may perform or announce a change. */

import type { ClaimRecord } from "../../lock-table/key-queue.ts";
import type { LockTable } from "../../lock-table/table.ts";
import type { Answer, Claim, ClaimId } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import { Session } from "../session/session.ts";
import type { DurableLog } from "./durable-log.ts";
import { CEILING_LEAD_MICROS } from "./durable-log.ts";
import type { SavedClaim } from "./storage.ts";

/** Leases up to this length are "short": a restart waits for them. Longer ones are in the journal. */
export const MAX_UNJOURNALED_MS = 60_000;
const RETRY_MS = 1_000;
/**
 * Delay before a write that lowers the lease: clients that connect together may request many lengths, and only the
 * longest is written.
 */
const LOWER_DELAY_MS = 1_000;
/** How long answers that need no write wait for those of the same call that do. */
const MAX_ANSWER_DELAY_MS = 100;
/** Failed writes are logged by monitored-storage.ts. */
const ignore = (): void => undefined;

/** True if the lease is longer than a restart waits for. Sessions are not: their claims are reclaimed. */
export function needsJournal(ttlMs: number | "session"): boolean {
  return ttlMs !== "session" && ttlMs > MAX_UNJOURNALED_MS;
}

/** The answer at this index, about this record, may be given once the write has succeeded. */
export interface PendingWrite {
  readonly index: number;
  readonly record: ClaimRecord;
  readonly write: Promise<void>;
}

export class WriteAhead {
  readonly durableLog: DurableLog;
  readonly #table: LockTable;
  readonly #clock: Clock;
  /** Pending journal writes. */
  readonly #writes = new Map<ClaimId, Promise<void>>();
  #isRaisingCeiling = false;
  /** When to repeat failed writes; Infinity: none failed. */
  #retryAt = Number.POSITIVE_INFINITY;
  /** When to write that the longest lease has become shorter; Infinity: it has not. */
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

  /** When advance() has work to do. */
  nextDueAt(): number {
    return Math.min(this.#retryAt, this.#lowerAt);
  }

  /**
   * Records the lease of a claim that may be granted, or was, and returns the time that a restart would have to wait
   * for it.
   */
  recordLease({ ttlMs }: Claim): number {
    const lease = unjournaledLeaseMs(ttlMs, this.#table.sessionMs);
    this.durableLog.recordLease(lease);
    if (this.durableLog.hasOverlongLease && this.#lowerAt === Number.POSITIVE_INFINITY) {
      this.#lowerAt = this.#clock.now() + LOWER_DELAY_MS;
    }
    return lease;
  }

  /** The write that must succeed before the claim may enter a queue; null: none. */
  reserveFor(claim: Claim, micros: number): Promise<void> | null {
    const { durableLog } = this;
    const highestToken = Math.max(this.#table.nextToken(claim), micros) + claim.tokenCount;
    const lease = this.recordLease(claim);
    if (highestToken > durableLog.ceiling || lease > durableLog.longestLeaseMs) {
      // a claim that is in the queue already stays there, whatever the disk does
      return this.#table.records.has(claim.id) ? null : this.#reserve(highestToken + CEILING_LEAD_MICROS, lease);
    }
    if (highestToken > durableLog.ceiling - CEILING_LEAD_MICROS / 2)
      this.#raiseCeiling(highestToken + CEILING_LEAD_MICROS);
    return null;
  }

  /** The write that must succeed before these claims may be reclaimed; null: none. */
  reserveForReclaim(claims: readonly { readonly claim: Claim }[]): Promise<void> | null {
    const longest = claims.reduce((longestSoFar, { claim }) => Math.max(longestSoFar, this.recordLease(claim)), 0);
    return longest > this.durableLog.longestLeaseMs ? this.#reserve(0, longest) : null;
  }

  /** The write that must succeed before the client may learn that it is the holder; null: none. */
  writeBeforeGrant(record: ClaimRecord): Promise<void> | null {
    if (!record.isHeld || !(record.isDetached || needsJournal(record.claim.ttlMs))) return null;
    const { id } = record.claim;
    // the revocation must be on disk, too: otherwise the claim would come back as a valid one
    if (this.durableLog.has(id, record.revokeReason)) return this.#writes.get(id) ?? null;
    return this.write(record);
  }

  /** The answer, if it is still true after the write: meanwhile the claim may have ended or been revoked. */
  confirmAnswer(answer: Answer, record: ClaimRecord): Answer {
    const { records, tombstones } = this.#table;
    const { id } = record.claim;
    if (records.get(id) !== record) return tombstones.noneAnswer(id);
    if (record.revokeReason !== null) return { state: "none", reason: record.revokeReason };
    return record.expiresAt > this.#clock.now() ? answer : { state: "none", reason: "expired" };
  }

  /**
   * Waits for the writes that some of the answers need. If others need none, the wait is short and a failure is not
   * passed on: answers without a completed write are undefined.
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

  /** Writes the current state of a claim to the journal. */
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

  /**
   * The same for a claim that was just detached. If the write fails it is not detached: `restoreOwner` returns it to
   * its session.
   */
  async writeDetached(record: ClaimRecord, restoreOwner: () => void): Promise<void> {
    // the client repeats the call because it had no answer: the claim is detached on disk, whatever another write would
    // do
    if (this.durableLog.hasDetached(record.claim.id)) return this.#writes.get(record.claim.id);
    return this.write(record).catch((error: unknown) => {
      record.isDetached = false;
      restoreOwner();
      throw error;
    });
  }

  /** Removes an ended claim from the journal. The caller does not wait for the write. */
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

  /** Raises the token ceiling if admitted claims wait for it. */
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

  /**
   * Without a retry nothing might request another write: released claims would come back after a crash, and /ready
   * would report a failure forever.
   */
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

  /** Raises the ceiling ahead of need. */
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

/** The time that a restart would have to wait for this lease: for a session, how long it survives without contact. */
export function unjournaledLeaseMs(ttlMs: number | "session", sessionMs: number): number {
  if (ttlMs === "session") return sessionMs;
  return needsJournal(ttlMs) ? 0 : ttlMs;
}

/** The saved form of a claim in its current state. */
export function toSavedClaim(record: ClaimRecord, now: number): SavedClaim {
  const { claim, token, tokenCount: tokens, arrival, isDetached: detached, account: by } = record;
  const leftMs = claim.ttlMs === "session" ? 0 : Math.max(record.expiresAt - now, 0);
  const session = record.owner instanceof Session ? record.owner.id : null;
  // an earlier version reads any non-empty value as true
  const revoked = record.revokeReason === "revoked" ? true : (record.revokeReason ?? false);
  const { maxHoldTimer } = record;
  const ownership = { session, ...(by !== "" && { by }) };
  const holdLimit = maxHoldTimer !== null && { holdLeftMs: Math.max(maxHoldTimer.dueAt - now, 0) };
  return { claim, token, tokens, leftMs, arrival, detached, revoked, ...ownership, ...holdLimit };
}
