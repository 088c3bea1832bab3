/**
 * The durable promises of the local backend: a ceiling for new tokens, the longest short lease that may be held, and
 * the claims that come back after a crash (journal.ts).
 *
 * Invariants
 * - `ceiling` and `longestLeaseMs` never exceed what is on disk. A promise that is still being written does not count
 *   yet.
 * - `longestLeaseMs` falls only after all leases from before the start have ended, and never below one requested since.
 * - One write of the state at a time: requests that arrive during a write share the next one.
 * - After a failed write the contents of the disk are unknown, except that they promise no less than before.
 *
 * This file alone decides what follows a failed write, of the state or of the journal: reservations are refused with
 * its error for RETRY_MS, without another attempt, and then advance() repeats the write. Nothing else might request
 * one: released claims would come back after a crash, and /ready would report the failure forever. write-ahead.ts
 * refuses the grants that depend on a write; monitored-storage.ts tells operators that writes fail.
 */

import type { RequestError } from "../request-error.ts";
import { diskError, drainingError } from "../request-error.ts";
import { Journal } from "./journal.ts";
import type { SavedClaim, SavedState, Storage } from "./storage.ts";

/** How far the token ceiling is kept ahead of the tokens' clock, in microseconds. */
export const CEILING_LEAD_MICROS = 30_000_000;
/** How long to wait after a failed write. */
const RETRY_MS = 1_000;
/**
 * Delay before a write that lowers the lease: clients that connect together may request many lengths, and only the
 * longest is written.
 */
const LOWER_DELAY_MS = 1_000;
const ignore = (): void => undefined;

export interface DurableLogOptions {
  readonly storage: Storage;
  readonly now: () => number;
  readonly state: SavedState;
  /** Locks from before the start may be held although they are not recorded here. */
  readonly isRecovering: boolean;
  /** The claims that the journal has at the start. */
  readonly journal: Iterable<SavedClaim>;
  /** Called after a failed write, since nextDueAt() has changed, and after its retry, since `ceiling` may have. */
  readonly onChange: () => void;
}

export class DurableLog {
  ceiling: number;
  longestLeaseMs: number;
  readonly journal: Journal;
  readonly #storage: Storage;
  readonly #now: () => number;
  readonly #onChange: () => void;
  /** The part of the state that stays the same during a run. */
  readonly #stateHeader: Pick<SavedState, "id" | "generation" | "remote" | "claimLimits">;
  #hasUnknownHolders: boolean;
  #requestedCeiling: number;
  /** The longest short lease from before the start, or the length that the start has reserved for new ones. */
  #earlierLeaseMs: number;
  /** Leases from before the start may still be held. */
  #isRecovering: boolean;
  /** The longest short lease requested since the start, or loaded from disk. */
  #requestedLeaseMs = 0;
  /** When to write that the longest lease has become shorter; Infinity: it has not. */
  #lowerAt = Number.POSITIVE_INFINITY;
  #pendingSave: Promise<void> | null = null;
  /** null: no write has failed, or each was made up for. */
  #failure: { readonly error: RequestError; readonly retryAt: number } | null = null;
  #isFinishing = false;

  constructor({ storage, now, state, isRecovering, journal, onChange }: DurableLogOptions) {
    this.#storage = storage;
    this.#now = now;
    this.#onChange = onChange;
    const { id, generation, remote, claimLimits } = state;
    this.#stateHeader = { id, generation, remote, ...(claimLimits && { claimLimits }) };
    this.#hasUnknownHolders = state.hasUnknownHolders;
    this.ceiling = this.#requestedCeiling = state.tokenCeiling;
    this.longestLeaseMs = this.#earlierLeaseMs = state.longestLeaseMs;
    this.#isRecovering = isRecovering;
    this.journal = new Journal({ storage, claims: journal, onFailure: (error) => this.#onWriteFailed(error) });
  }

  /**
   * Settles when tokens below `ceiling` and short leases of `longestLeaseMs` are promised on disk.
   * @throws RequestError if the disk fails
   */
  async reserve(ceiling: number, longestLeaseMs: number): Promise<void> {
    this.recordLease(longestLeaseMs);
    this.#requestedCeiling = Math.max(this.#requestedCeiling, ceiling);
    while (this.ceiling < ceiling || this.longestLeaseMs < longestLeaseMs) {
      this.#checkWritable();
      this.#pendingSave ??= this.#save();
      await this.#pendingSave;
    }
  }

  /** Remembers that short leases of this length may be granted, regardless of those from before the start. */
  recordLease(leaseMs: number): void {
    if (leaseMs > this.#requestedLeaseMs) this.#requestedLeaseMs = leaseMs;
    if (this.#lowerAt === Number.POSITIVE_INFINITY && this.#hasOverlongLease())
      this.#lowerAt = this.#now() + LOWER_DELAY_MS;
  }

  /** All possible holders from before the start have had time to reclaim. */
  finishRecovery(): void {
    if (!this.#isRecovering) return;
    this.#isRecovering = false;
    this.#hasUnknownHolders = false;
    if (this.#hasOverlongLease()) this.#earlierLeaseMs = 0;
    this.#saveSoon();
  }

  /** There may be holders that this state does not know, with leases of up to this length. */
  startRecovery(longestLeaseMs: number): void {
    this.#isRecovering = true;
    this.#hasUnknownHolders = true;
    this.#earlierLeaseMs = Math.max(this.#earlierLeaseMs, longestLeaseMs);
    this.#saveSoon();
  }

  /** True from a failed write until it was made up for, or its retry has begun. */
  get isFailing(): boolean {
    return this.#failure !== null;
  }

  /** When advance() has work to do; Infinity: never. */
  nextDueAt(): number {
    return Math.min(this.#failure?.retryAt ?? Number.POSITIVE_INFINITY, this.#lowerAt);
  }

  advance(now: number): void {
    if (now >= this.#lowerAt) {
      this.#lowerAt = Number.POSITIVE_INFINITY;
      this.#lowerLease();
    }
    if (this.#failure === null || now < this.#failure.retryAt) return;
    this.#failure = null;
    this.#retry();
  }

  /** Writes the final state of this run. No other write may follow, since it would overwrite this one. */
  async finish(state: Pick<SavedState, "tokenCeiling" | "clean">): Promise<void> {
    this.#isFinishing = true;
    do await this.waitUntilIdle();
    while (this.#pendingSave !== null || this.journal.isWriting);
    await this.#storage.saveState({
      ...this.#stateHeader,
      ...state,
      longestLeaseMs: this.#requiredLeaseMs,
      hasUnknownHolders: this.#hasUnknownHolders,
    });
  }

  /** Settles when the pending writes have ended. */
  async waitUntilIdle(): Promise<void> {
    await Promise.allSettled([this.#pendingSave, this.journal.waitUntilIdle()]);
  }

  get #requiredLeaseMs(): number {
    return Math.max(this.#earlierLeaseMs, this.#requestedLeaseMs);
  }

  /** True if a restart would wait for longer leases than any that can be held. */
  #hasOverlongLease(): boolean {
    return !this.#isRecovering && this.#requestedLeaseMs > 0 && this.#earlierLeaseMs > this.#requestedLeaseMs;
  }

  /** Lowers the promised lease, so that a restart waits no longer than necessary. */
  #lowerLease(): void {
    if (!this.#hasOverlongLease()) return;
    this.#earlierLeaseMs = 0;
    this.#saveSoon();
  }

  async #save(): Promise<void> {
    const tokenCeiling = this.#requestedCeiling;
    const longestLeaseMs = this.#requiredLeaseMs;
    // until a smaller value is written, it is unknown which of the two is on disk
    this.longestLeaseMs = Math.min(this.longestLeaseMs, longestLeaseMs);
    try {
      await this.#storage.saveState({
        ...this.#stateHeader,
        tokenCeiling,
        longestLeaseMs,
        hasUnknownHolders: this.#hasUnknownHolders,
        clean: null,
      });
      this.ceiling = Math.max(this.ceiling, tokenCeiling);
      this.longestLeaseMs = longestLeaseMs;
      // a journal that has to be rewritten still needs the retry
      if (!this.journal.isFailing) this.#failure = null;
    } catch (error) {
      throw this.#onWriteFailed(error);
    } finally {
      this.#pendingSave = null;
    }
  }

  /** Writes the state again after the pending write. The caller does not wait; a failed write is repeated. */
  #saveSoon(): void {
    const save = (): void => {
      if (!this.#isFinishing) this.#pendingSave ??= this.#save();
      this.#pendingSave?.catch(ignore);
    };
    Promise.resolve(this.#pendingSave).then(save, save);
  }

  #retry(): void {
    const isBehind = this.ceiling < this.#requestedCeiling || this.longestLeaseMs < this.#requiredLeaseMs;
    if (!isBehind && !this.journal.isFailing) return;
    if (isBehind) this.#pendingSave ??= this.#save();
    void Promise.allSettled([this.#pendingSave, this.journal.retry()]).then(() => this.#onChange());
  }

  #checkWritable(): void {
    if (this.#isFinishing) throw drainingError();
    if (this.#failure !== null && this.#now() < this.#failure.retryAt) throw this.#failure.error;
  }

  /** Plans the retry, and returns the error for the callers that wait for the write. */
  #onWriteFailed(error: unknown): RequestError {
    const refusal = diskError(error);
    this.#failure = { error: refusal, retryAt: this.#now() + RETRY_MS };
    this.#onChange();
    return refusal;
  }
}
