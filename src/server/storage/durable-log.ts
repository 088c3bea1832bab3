/**
 * What the keeper has promised durably (design A.5): a bound that new tokens stay below, the longest short lease that
 * may be held, and the claims that come back from disk.
 *
 * Invariants
 * - `bound` and `longestMs` are what stands on the disk, never more. A promise that is being written is not made yet.
 * - `longestMs` falls only when all leases from before the start have ended, and never below one asked for since.
 * - One write at a time: what is asked for meanwhile goes into the next one, in one write for all who ask.
 * - After a failed write nothing is known of what stands on the disk but that it is no less than before.
 */

import type { ClaimRecord } from "../../lock-table/claim-record.ts";
import type { ClaimId } from "../../spi/driver.ts";
import { drainingError, RequestError } from "../backend.ts";
import type { JournalRecord, SavedClaim, SavedState, Storage } from "./storage.ts";

/** How far the bound of tokens is kept ahead of their clock, in microseconds. */
export const CEILING_LEAD_MICROS = 30_000_000;
/** How long a disk that failed is left alone. */
const RETRY_MS = 1_000;
const ignore = (): void => undefined;
/** The journal is written anew when it has grown by this many records beyond twice what it has to say. */
const COMPACTION_SLACK = 1_000;

export interface DurableLogOptions {
  readonly storage: Storage;
  readonly now: () => number;
  readonly state: SavedState;
  /** What was granted before the start may be held, although nothing here says so. */
  readonly isRecovering: boolean;
  readonly journal: Iterable<SavedClaim>;
}

/** A record to be written. */
interface QueuedRecord {
  readonly record: JournalRecord;
  /** What the journal said of a claim that is put once more. */
  readonly previous: SavedClaim | undefined;
}

export class DurableLog {
  ceiling: number;
  longestLeaseMs: number;
  readonly #storage: Storage;
  readonly #now: () => number;
  /** What does not change in a start. */
  readonly #stateHeader: Pick<SavedState, "id" | "generation" | "remote" | "room">;
  #hasUnknownHolders: boolean;
  #requestedCeiling: number;
  /** The longest short lease from before the start, or what the start has set aside for those to come. */
  #earlierLeaseMs: number;
  /** Those from before may still be held. */
  #isRecovering: boolean;
  /** The longest short lease that was asked for since the start, or came back from disk. */
  #requestedLeaseMs = 0;
  #pendingSave: Promise<void> | null = null;
  /** What the journal says when all that was asked for is written. */
  readonly #claims = new Map<ClaimId, SavedClaim>();
  #recordCount: number;
  #queue: QueuedRecord[] = [];
  /** Settles, without a failure, when the write under way has ended. */
  #lastWrite: Promise<void> = Promise.resolve();
  #nextWrite: Promise<void> | null = null;
  #failure: { readonly error: RequestError; readonly until: number } | null = null;
  #isFinishing = false;

  /** Called when a write has failed: what it was for is to be tried again. */
  onFailure: () => void = () => undefined;

  constructor({ storage, now, state, isRecovering, journal }: DurableLogOptions) {
    this.#storage = storage;
    this.#now = now;
    const { id, generation, remote, room } = state;
    this.#stateHeader = { id, generation, remote, ...(room && { room }) };
    this.#hasUnknownHolders = state.strangers;
    this.ceiling = this.#requestedCeiling = state.bound;
    this.longestLeaseMs = this.#earlierLeaseMs = state.longestMs;
    this.#isRecovering = isRecovering;
    for (const saved of journal) this.#claims.set(saved.claim.id, saved);
    this.#recordCount = this.#claims.size;
  }

  /** Settles when tokens below `bound` and short leases of `longestMs` are promised. @throws RequestError if the disk fails */
  async reserve(ceiling: number, longestLeaseMs: number): Promise<void> {
    this.recordLease(longestLeaseMs);
    this.#requestedCeiling = Math.max(this.#requestedCeiling, ceiling);
    while (this.ceiling < ceiling || this.longestLeaseMs < longestLeaseMs) {
      this.#checkWritable();
      this.#pendingSave ??= this.#save();
      await this.#pendingSave;
    }
  }

  /** A short lease of this length may be granted from now on, whatever becomes of those from before the start. */
  recordLease(leaseMs: number): void {
    if (leaseMs > this.#requestedLeaseMs) this.#requestedLeaseMs = leaseMs;
  }

  /** Would a restart wait for longer leases than any that can be held? */
  get hasOverlongLease(): boolean {
    return !this.#isRecovering && this.#requestedLeaseMs > 0 && this.#earlierLeaseMs > this.#requestedLeaseMs;
  }

  /** A restart is to wait only for leases that can be held. */
  lowerLease(): void {
    if (!this.hasOverlongLease) return;
    this.#earlierLeaseMs = 0;
    this.#saveSoon();
  }

  /** All who may hold something from before have had their time to say so. */
  finishRecovery(): void {
    if (!this.#isRecovering) return;
    this.#isRecovering = false;
    this.#hasUnknownHolders = false;
    if (this.hasOverlongLease) this.#earlierLeaseMs = 0;
    this.#saveSoon();
  }

  /** Others than this state knows of may hold something, with leases of up to this length. */
  startRecovery(longestLeaseMs: number): void {
    this.#isRecovering = true;
    this.#hasUnknownHolders = true;
    this.#earlierLeaseMs = Math.max(this.#earlierLeaseMs, longestLeaseMs);
    this.#saveSoon();
  }

  /** Settles when the claim would come back after a crash. @throws RequestError if the disk fails */
  put(saved: SavedClaim): Promise<void> {
    const previous = this.#claims.get(saved.claim.id);
    this.#claims.set(saved.claim.id, saved);
    return this.#append({ put: saved }, previous);
  }

  /** Settles when the claim would not come back any more. */
  drop(id: ClaimId): Promise<void> {
    if (!this.#claims.delete(id)) return Promise.resolve();
    return this.#append({ drop: id });
  }

  /** Does the journal have the claim, or will it with the writes under way? revoked: and that it was. */
  has(id: ClaimId, revoked: ClaimRecord["revokeReason"] = null): boolean {
    const claim = this.#claims.get(id);
    return claim !== undefined && (revoked === null || claim.revoked !== false);
  }

  /** Likewise as a detached one? */
  hasDetached(id: ClaimId): boolean {
    return this.#claims.get(id)?.detached === true;
  }

  /** A write has failed, and what it was for does not stand on the disk yet. */
  get isFailing(): boolean {
    return this.#recordCount === Number.POSITIVE_INFINITY || (this.#pendingSave === null && this.#isBehind());
  }

  /** Writes what failed once more, so that nothing is left undone because nobody happens to ask for another write. */
  async retry(): Promise<void> {
    if (this.#recordCount === Number.POSITIVE_INFINITY) this.#nextWrite ??= this.#writeNext();
    if (this.#isBehind()) this.#pendingSave ??= this.#save();
    await Promise.all([this.#pendingSave, this.#nextWrite]);
  }

  get #requiredLeaseMs(): number {
    return Math.max(this.#earlierLeaseMs, this.#requestedLeaseMs);
  }

  #isBehind(): boolean {
    return this.ceiling < this.#requestedCeiling || this.longestLeaseMs < this.#requiredLeaseMs;
  }

  /** Writes the last state of this start. Nothing else is written any more, or it would be written over this. */
  async finish(state: Pick<SavedState, "bound" | "clean">): Promise<void> {
    this.#isFinishing = true;
    do await this.waitUntilIdle();
    while (this.#pendingSave !== null || this.#nextWrite !== null);
    await this.#storage.saveState({
      ...this.#stateHeader,
      ...state,
      longestMs: this.#requiredLeaseMs,
      strangers: this.#hasUnknownHolders,
    });
  }

  /** Settles when nothing is being written. */
  async waitUntilIdle(): Promise<void> {
    await Promise.allSettled([this.#pendingSave, this.#lastWrite, this.#nextWrite]);
  }

  async #save(): Promise<void> {
    const ceiling = this.#requestedCeiling;
    const longestMs = this.#requiredLeaseMs;
    // of a smaller one it is not known, until it is written, whether it stands there
    this.longestLeaseMs = Math.min(this.longestLeaseMs, longestMs);
    try {
      await this.#storage.saveState({
        ...this.#stateHeader,
        bound: ceiling,
        longestMs,
        strangers: this.#hasUnknownHolders,
        clean: null,
      });
      this.ceiling = Math.max(this.ceiling, ceiling);
      this.longestLeaseMs = longestMs;
      this.#failure = null;
    } catch (error) {
      throw this.#toRequestError(error);
    } finally {
      this.#pendingSave = null;
    }
  }

  /** Writes the state once more, after what is being written now. Nobody waits for it; what matters is tried again (`onFailure`). */
  #saveSoon(): void {
    const save = (): void => {
      if (!this.#isFinishing) this.#pendingSave ??= this.#save();
      this.#pendingSave?.catch(ignore);
    };
    Promise.resolve(this.#pendingSave).then(save, save);
  }

  #append(record: JournalRecord, previous?: SavedClaim): Promise<void> {
    this.#queue.push({ record, previous });
    this.#nextWrite ??= this.#writeNext();
    return this.#nextWrite;
  }

  /** One write for all who have come by the time the one under way has ended, and at least until the end of this turn. */
  async #writeNext(): Promise<void> {
    await this.#lastWrite;
    this.#nextWrite = null;
    const queued = this.#queue;
    this.#queue = [];
    const written = this.#write(queued);
    this.#lastWrite = written.then(ignore, ignore);
    await written;
  }

  async #write(queued: readonly QueuedRecord[]): Promise<void> {
    try {
      this.#recordCount += queued.length;
      if (this.#recordCount > 2 * this.#claims.size + COMPACTION_SLACK) {
        const claims = [...this.#claims.values()];
        await this.#storage.rewriteJournal(claims.map((put) => ({ put })));
        this.#recordCount = claims.length;
      } else {
        await this.#storage.appendJournal(queued.map(({ record }) => record));
      }
    } catch (error) {
      // what was to be put is refused; what was to be dropped is, by the next write, which writes all anew
      for (const { record, previous } of [...queued].reverse())
        if ("put" in record) this.#rollBack(record.put, previous);
      this.#recordCount = Number.POSITIVE_INFINITY;
      throw this.#toRequestError(error);
    }
  }

  /** What was promised of the claim before stays promised; what has been asked for since is the next write's. */
  #rollBack(put: SavedClaim, previous: SavedClaim | undefined): void {
    const { id } = put.claim;
    if (this.#claims.get(id) !== put) return;
    if (previous === undefined) this.#claims.delete(id);
    else this.#claims.set(id, previous);
  }

  #checkWritable(): void {
    if (this.#isFinishing) throw drainingError();
    if (this.#failure !== null && this.#now() < this.#failure.until) throw this.#failure.error;
  }

  #toRequestError(error: unknown): RequestError {
    const code = (error as NodeJS.ErrnoException | null)?.code ?? "an error";
    const requestError = new RequestError(
      "DISK",
      `the server cannot write its state (${code}); locks that must be persisted are refused`,
      error,
    );
    this.#failure = { error: requestError, until: this.#now() + RETRY_MS };
    this.onFailure();
    return requestError;
  }
}
