/**
 * What must be on disk before the lock table may perform or announce a change. Two functions decide it:
 *
 *   reserve(claim)            before the claim enters a queue: from then on it may be granted at any time, also by the
 *                             end of another claim. The token ceiling and the longest lease on disk must cover such a
 *                             grant.
 *   persist(record, answer)   before a client learns "held": a claim whose lease is longer than a restart waits for, or
 *                             that is detached and so reclaimed by no client, must be in the journal.
 *
 * Why that is safe: after a crash the next start issues tokens above the ceiling only, and grants nothing until the
 * longest lease on disk has passed or all clients have reported; claims of the journal are restored as held. So a
 * holder that was told "held" is either waited for or restored. A write may fail, or complete when the claim has ended
 * already: persist() checks the claim again after it, and a failed write refuses the grant; durable-log.ts repeats the
 * write. Both return a plain value if no write is needed.
 */

import type { ClaimRecord } from "../../lock-table/key-queue.ts";
import type { LockTable } from "../../lock-table/table.ts";
import type { Answer, Claim, ClaimId } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import type { MaybePromise } from "../../util/maybe-promise.ts";
import type { DurableLogOptions } from "./durable-log.ts";
import { CEILING_LEAD_MICROS, DurableLog } from "./durable-log.ts";
import type { SavedClaim } from "./storage.ts";

/** Leases up to this length are "short": a restart waits for them. Longer ones are in the journal. */
export const MAX_UNJOURNALED_MS = 60_000;
/** How long answers that need no write wait for those of the same call that do. */
const MAX_ANSWER_DELAY_MS = 100;
/** For a write that no answer depends on: durable-log.ts repeats it, and monitored-storage.ts logs the failure. */
const ignore = (): void => undefined;

/** True if the lease is longer than a restart waits for. Sessions are not: their claims are reclaimed. */
export function needsJournal(ttlMs: number | "session"): boolean {
  return ttlMs !== "session" && ttlMs > MAX_UNJOURNALED_MS;
}

/** A claim and the answer about it. */
export interface ClaimAnswer<Owner> {
  /** undefined: no claim in the table. */
  readonly record: ClaimRecord<Owner> | undefined;
  readonly answer: Answer | undefined;
}

/** What is on disk at the start, and where to write the rest. */
export type DurableState = Pick<DurableLogOptions, "storage" | "state" | "isRecovering" | "journal">;

export interface WriteAheadOptions<Owner> {
  readonly durableState: DurableState;
  readonly table: LockTable<Owner>;
  readonly clock: Clock;
  /** The claim as it is to be saved now. */
  readonly toSavedClaim: (record: ClaimRecord<Owner>) => SavedClaim;
  /** Called when grants may have become possible outside a call. */
  readonly onChange: () => void;
}

export class WriteAhead<Owner> {
  readonly durableLog: DurableLog;
  readonly #table: LockTable<Owner>;
  readonly #clock: Clock;
  /** Pending journal writes. */
  readonly #writes = new Map<ClaimId, Promise<void>>();
  #isRaisingCeiling = false;
  readonly #toSavedClaim: (record: ClaimRecord<Owner>) => SavedClaim;
  readonly #onChange: () => void;

  constructor({ durableState, table, clock, toSavedClaim, onChange }: WriteAheadOptions<Owner>) {
    this.#table = table;
    this.#clock = clock;
    this.#toSavedClaim = toSavedClaim;
    this.#onChange = onChange;
    this.durableLog = new DurableLog({
      ...durableState,
      now: () => clock.now(),
      onChange: () => {
        table.raiseTokenCeiling(this.durableLog.ceiling);
        onChange();
      },
    });
  }

  /**
   * Records the lease of a claim that may be granted, or was, and returns the time that a restart would have to wait
   * for it.
   */
  recordLease({ ttlMs }: Claim): number {
    const lease = unjournaledLeaseMs(ttlMs, this.#table.sessionMs);
    this.durableLog.recordLease(lease);
    return lease;
  }

  /** To be called before the claim may enter a queue. @throws (rejects) RequestError if the disk fails */
  reserve(claim: Claim, micros: number): MaybePromise<void> {
    const { durableLog } = this;
    const highestToken = Math.max(this.#table.nextToken(claim), micros) + claim.tokenCount;
    const lease = this.recordLease(claim);
    if (highestToken > durableLog.ceiling || lease > durableLog.longestLeaseMs) {
      // a claim that is in the queue already stays there, whatever the disk does
      if (!this.#table.records.has(claim.id)) return this.#reserve(highestToken + CEILING_LEAD_MICROS, lease);
    } else if (highestToken > durableLog.ceiling - CEILING_LEAD_MICROS / 2) {
      this.#raiseCeiling(highestToken + CEILING_LEAD_MICROS);
    }
  }

  /** The same for claims that are reclaimed, with the tokens that they have. */
  reserveForReclaim(claims: readonly { readonly claim: Claim }[]): MaybePromise<void> {
    const longest = claims.reduce((longestSoFar, { claim }) => Math.max(longestSoFar, this.recordLease(claim)), 0);
    if (longest > this.durableLog.longestLeaseMs) return this.#reserve(0, longest);
  }

  /**
   * To be called before a client may learn the answer. It is changed if the claim ended, or was revoked, during the
   * write.
   * @throws (rejects) RequestError if the disk fails
   */
  persist(record: ClaimRecord<Owner>, answer: Answer): MaybePromise<Answer> {
    const write = this.#writeGrant(record);
    return write === null ? answer : write.then(() => this.#confirmAnswer(answer, record));
  }

  /**
   * The same for the answers of one call. If some need no write, the wait for the others is short and a failure is not
   * passed on: answers without a completed write are undefined.
   */
  persistAll(claimAnswers: readonly ClaimAnswer<Owner>[]): MaybePromise<readonly (Answer | undefined)[]> {
    const writes = claimAnswers.map(({ record, answer }) =>
      record === undefined || answer === undefined || answer.state === "none" ? null : this.#writeGrant(record),
    );
    return writes.every((write) => write === null)
      ? claimAnswers.map(({ answer }) => answer)
      : this.#answerAfterWrites(claimAnswers, writes);
  }

  async #answerAfterWrites(
    claimAnswers: readonly ClaimAnswer<Owner>[],
    writes: readonly (Promise<void> | null)[],
  ): Promise<readonly (Answer | undefined)[]> {
    const written = new Set<Promise<void>>();
    const pending = writes.flatMap((write) => (write === null ? [] : [write.then(() => void written.add(write))]));
    if (pending.length === writes.length) await Promise.all(pending);
    else await this.#waitBriefly(pending);
    return claimAnswers.map(({ record, answer }, index) => {
      const write = writes[index] as Promise<void> | null;
      if (write === null) return answer;
      return written.has(write) ? this.#confirmAnswer(answer as Answer, record as ClaimRecord<Owner>) : undefined;
    });
  }

  /** The write that must succeed before the client may learn that it is the holder; null: none. */
  #writeGrant(record: ClaimRecord<Owner>): Promise<void> | null {
    if (!record.isHeld || !(record.isDetached || needsJournal(record.claim.ttlMs))) return null;
    const { id } = record.claim;
    const saved = this.durableLog.journal.find(id);
    // the revocation must be on disk, too: otherwise the claim would come back as a valid one
    const isWritten = saved !== undefined && (record.revokeReason === null || saved.revokeReason !== null);
    return isWritten ? (this.#writes.get(id) ?? null) : this.#write(record);
  }

  /** The answer, if it is still true after the write: meanwhile the claim may have ended or been revoked. */
  #confirmAnswer(answer: Answer, record: ClaimRecord<Owner>): Answer {
    const { records, tombstones } = this.#table;
    const { id } = record.claim;
    if (records.get(id) !== record) return tombstones.noneAnswer(id);
    if (record.revokeReason !== null) return { state: "none", reason: record.revokeReason };
    return record.expiresAt > this.#clock.now() ? answer : { state: "none", reason: "expired" };
  }

  /** Writes the current state of a claim to the journal. */
  #write(record: ClaimRecord<Owner>): Promise<void> {
    const { id } = record.claim;
    const written = this.durableLog.journal.put(this.#toSavedClaim(record)).finally(() => {
      if (this.#writes.get(id) === written) this.#writes.delete(id);
    });
    this.#writes.set(id, written);
    return written;
  }

  /**
   * The same for a claim that was just detached. If the write fails it is not detached: `restoreOwner` returns it to
   * its session.
   */
  async persistDetached(record: ClaimRecord<Owner>, restoreOwner: () => void): Promise<void> {
    // the client repeats the call because it had no answer: the claim is detached on disk, whatever another write would
    // do
    const { id } = record.claim;
    if (this.durableLog.journal.find(id)?.isDetached === true) return this.#writes.get(id);
    return this.#write(record).catch((error: unknown) => {
      record.isDetached = false;
      restoreOwner();
      throw error;
    });
  }

  /**
   * To be called before an operator may learn that these claims are revoked, or removed: after a crash they would be
   * held again.
   * @throws (rejects) RequestError if the disk fails
   */
  async persistRevocations(records: readonly ClaimRecord<Owner>[]): Promise<void> {
    const writes = records.map((record) =>
      this.#table.records.get(record.claim.id) === record ? this.#writeGrant(record) : null,
    );
    await Promise.all([...writes, this.persistEnds(records.map(({ claim }) => claim.id))]);
  }

  /**
   * To be called before a client may learn that these claims have ended: one that would come back after a crash has
   * not. null: none would.
   * @throws (rejects) RequestError if the disk fails
   */
  persistEnds(ids: readonly ClaimId[]): Promise<void> | null {
    const { journal } = this.durableLog;
    const pendingIds = ids.filter((id) => journal.isDropPending(id));
    return pendingIds.length === 0 ? null : journal.waitUntilDropped(pendingIds);
  }

  /** Removes an ended claim from the journal, if that has it. The caller does not wait for the write. */
  removeFromJournal({ claim: { id } }: ClaimRecord<Owner>): void {
    const { journal } = this.durableLog;
    if (journal.find(id) !== undefined) journal.drop(id).catch(ignore);
  }

  /** Raises the token ceiling if admitted claims wait for it. While writes fail, their retry does. */
  raiseCeilingIfNeeded(): void {
    if (this.#isRaisingCeiling || this.durableLog.isFailing) return;
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

  /** Raises the ceiling ahead of need. */
  #raiseCeiling(ceiling: number): void {
    if (this.#isRaisingCeiling) return;
    this.#isRaisingCeiling = true;
    this.#reserve(ceiling, 0)
      .catch(ignore)
      .finally(() => {
        this.#isRaisingCeiling = false;
        this.#onChange();
      });
  }
}

/** The time that a restart would have to wait for this lease: for a session, how long it survives without contact. */
export function unjournaledLeaseMs(ttlMs: number | "session", sessionMs: number): number {
  if (ttlMs === "session") return sessionMs;
  return needsJournal(ttlMs) ? 0 : ttlMs;
}
