/**
 * The durable promises of the local backend: a ceiling for new tokens, the longest short lease that may be held, and the
 * claims that come back after a crash.
 *
 * Invariants
 * - `ceiling` and `longestLeaseMs` never exceed what is on disk. A promise that is still being written does not count yet.
 * - `longestLeaseMs` falls only after all leases from before the start have ended, and never below one requested since.
 * - One write at a time: requests that arrive during a write share the next one.
 * - After a failed write the contents of the disk are unknown, except that they promise no less than before.
 * - An ended claim is dropped from the journal also while the disk is full: the storage keeps room for it (storage.ts).
 */

import type { ClaimRecord } from "../../lock-table/key-queue.ts";
import type { ClaimId } from "../../spi/driver.ts";
import { drainingError, RequestError } from "../request-error.ts";
import type { JournalRecord, SavedClaim, SavedState, Storage } from "./storage.ts";

/** How far the token ceiling is kept ahead of the tokens' clock, in microseconds. */
export const CEILING_LEAD_MICROS = 30_000_000;
/** How long to wait after a failed write. */
const RETRY_MS = 1_000;
const ignore = (): void => undefined;
/** The journal is rewritten when it has this many records more than twice the number of its claims. */
const COMPACTION_SLACK = 1_000;

export interface DurableLogOptions {
  readonly storage: Storage;
  readonly now: () => number;
  readonly state: SavedState;
  /** Locks from before the start may be held although they are not recorded here. */
  readonly isRecovering: boolean;
  readonly journal: Iterable<SavedClaim>;
  /** Called after a failed write, which must be tried again. */
  readonly onFailure: () => void;
}

/** A record waiting to be written. */
interface QueuedRecord {
  readonly record: JournalRecord;
  /** The journal's previous record of a claim that is written again. */
  readonly previous: SavedClaim | undefined;
}

export class DurableLog {
  ceiling: number;
  longestLeaseMs: number;
  readonly #storage: Storage;
  readonly #now: () => number;
  /** The part of the state that stays the same during a run. */
  readonly #stateHeader: Pick<SavedState, "id" | "generation" | "remote" | "room">;
  #hasUnknownHolders: boolean;
  #requestedCeiling: number;
  /** The longest short lease from before the start, or the length that the start has reserved for new ones. */
  #earlierLeaseMs: number;
  /** Leases from before the start may still be held. */
  #isRecovering: boolean;
  /** The longest short lease requested since the start, or loaded from disk. */
  #requestedLeaseMs = 0;
  #pendingSave: Promise<void> | null = null;
  /** The claims of the journal after all pending writes. */
  readonly #claims = new Map<ClaimId, SavedClaim>();
  #recordCount: number;
  /** A write of the journal has failed: what it has on disk is unknown until it is rewritten. */
  #mustRewriteJournal = false;
  #queue: QueuedRecord[] = [];
  /** Ended claims that the journal on disk may still have: those that no write has taken yet, and those of the current write. */
  #unwrittenDrops = new Set<ClaimId>();
  #currentDrops: ReadonlySet<ClaimId> = new Set();
  /** Settles when the current write has ended, and never rejects. */
  #lastWrite: Promise<void> = Promise.resolve();
  /** The same, which may reject; null: none. */
  #currentWrite: Promise<void> | null = null;
  #nextWrite: Promise<void> | null = null;
  #failure: { readonly error: RequestError; readonly until: number } | null = null;
  #isFinishing = false;
  readonly #onFailure: () => void;

  constructor({ storage, now, state, isRecovering, journal, onFailure }: DurableLogOptions) {
    this.#storage = storage;
    this.#now = now;
    this.#onFailure = onFailure;
    const { id, generation, remote, room } = state;
    this.#stateHeader = { id, generation, remote, ...(room && { room }) };
    this.#hasUnknownHolders = state.strangers;
    this.ceiling = this.#requestedCeiling = state.bound;
    this.longestLeaseMs = this.#earlierLeaseMs = state.longestMs;
    this.#isRecovering = isRecovering;
    for (const saved of journal) this.#claims.set(saved.claim.id, saved);
    this.#recordCount = this.#claims.size;
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
  }

  /** True if a restart would wait for longer leases than any that can be held. */
  get hasOverlongLease(): boolean {
    return !this.#isRecovering && this.#requestedLeaseMs > 0 && this.#earlierLeaseMs > this.#requestedLeaseMs;
  }

  /** Lowers the promised lease, so that a restart waits no longer than necessary. */
  lowerLease(): void {
    if (!this.hasOverlongLease) return;
    this.#earlierLeaseMs = 0;
    this.#saveSoon();
  }

  /** All possible holders from before the start have had time to reclaim. */
  finishRecovery(): void {
    if (!this.#isRecovering) return;
    this.#isRecovering = false;
    this.#hasUnknownHolders = false;
    if (this.hasOverlongLease) this.#earlierLeaseMs = 0;
    this.#saveSoon();
  }

  /** There may be holders that this state does not know, with leases of up to this length. */
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

  /** Settles when the claim would not come back after a crash. */
  drop(id: ClaimId): Promise<void> {
    if (!this.#claims.delete(id)) return Promise.resolve();
    this.#unwrittenDrops.add(id);
    return this.#append({ drop: id });
  }

  /** True if the claim would come back after a crash, as far as known. */
  mayComeBack(id: ClaimId): boolean {
    return this.#claims.has(id) || this.isDropPending(id);
  }

  /** The same for an ended claim. */
  isDropPending(id: ClaimId): boolean {
    return this.#unwrittenDrops.has(id) || this.#currentDrops.has(id);
  }

  /**
   * Settles when none of these ended claims would come back after a crash. Repeats a failed write.
   * @throws RequestError if the disk fails
   */
  async waitUntilDropped(ids: readonly ClaimId[]): Promise<void> {
    const isPending = (): boolean => ids.some((id) => this.isDropPending(id));
    if (!isPending()) return;
    const write = this.#nextWrite ?? this.#currentWrite ?? this.#beginNextWrite();
    await write.catch((error: unknown) => {
      // a write that fails because of other records may still have dropped these
      if (isPending()) throw error;
    });
  }

  /**
   * True if the journal has the claim, or will have it after the pending writes. revoked: and has this reason of its
   * revocation.
   */
  has(id: ClaimId, revoked: ClaimRecord["revokeReason"] = null): boolean {
    const claim = this.#claims.get(id);
    return claim !== undefined && (revoked === null || claim.revoked !== false);
  }

  /** The same for a detached claim. */
  hasDetached(id: ClaimId): boolean {
    return this.#claims.get(id)?.detached === true;
  }

  /** True if a write has failed and was not made up for yet. */
  get isFailing(): boolean {
    return this.#mustRewriteJournal || (this.#pendingSave === null && this.#isBehind());
  }

  /** Repeats failed writes, which would otherwise stay undone until another write is requested. */
  async retry(): Promise<void> {
    if (this.#mustRewriteJournal) void this.#beginNextWrite(); // awaited below
    if (this.#isBehind()) this.#pendingSave ??= this.#save();
    await Promise.all([this.#pendingSave, this.#nextWrite]);
  }

  get #requiredLeaseMs(): number {
    return Math.max(this.#earlierLeaseMs, this.#requestedLeaseMs);
  }

  #isBehind(): boolean {
    return this.ceiling < this.#requestedCeiling || this.longestLeaseMs < this.#requiredLeaseMs;
  }

  /** Writes the final state of this run. No other write may follow, since it would overwrite this one. */
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

  /** Settles when no write is pending. */
  async waitUntilIdle(): Promise<void> {
    await Promise.allSettled([this.#pendingSave, this.#lastWrite, this.#nextWrite]);
  }

  async #save(): Promise<void> {
    const ceiling = this.#requestedCeiling;
    const longestMs = this.#requiredLeaseMs;
    // until a smaller value is written, it is unknown which of the two is on disk
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

  /** Writes the state again after the pending write. The caller does not wait; `onFailure` leads to a retry. */
  #saveSoon(): void {
    const save = (): void => {
      if (!this.#isFinishing) this.#pendingSave ??= this.#save();
      this.#pendingSave?.catch(ignore);
    };
    Promise.resolve(this.#pendingSave).then(save, save);
  }

  #append(record: JournalRecord, previous?: SavedClaim): Promise<void> {
    this.#queue.push({ record, previous });
    return this.#beginNextWrite();
  }

  #beginNextWrite(): Promise<void> {
    this.#nextWrite ??= this.#writeNext();
    return this.#nextWrite;
  }

  /**
   * Combines all requests that arrive until the current write has ended, and at least until the end of this turn, into
   * one write.
   */
  async #writeNext(): Promise<void> {
    await this.#lastWrite;
    this.#nextWrite = null;
    const queued = this.#queue;
    this.#queue = [];
    const written = this.#write(queued);
    this.#currentWrite = written;
    this.#lastWrite = written.then(ignore, ignore);
    await written.finally(() => {
      if (this.#currentWrite === written) this.#currentWrite = null;
    });
  }

  async #write(queued: readonly QueuedRecord[]): Promise<void> {
    this.#currentDrops = this.#unwrittenDrops;
    this.#unwrittenDrops = new Set();
    try {
      this.#recordCount += queued.length;
      if (this.#mustRewriteJournal || this.#recordCount > 2 * this.#claims.size + COMPACTION_SLACK) {
        const claims = [...this.#claims.values()];
        await this.#storage.rewriteJournal(claims.map((put) => ({ put })));
        this.#recordCount = claims.length;
        this.#mustRewriteJournal = false;
      } else {
        await this.#storage.appendJournal(
          queued.map(({ record }) => record),
          this.#claims.size,
        );
      }
      this.#currentDrops = new Set();
    } catch (error) {
      // a failed put is refused; a failed drop is done at once in the room kept for it, or else by the next write
      for (const { record, previous } of [...queued].reverse())
        if ("put" in record) this.#rollBack(record.put, previous);
      this.#mustRewriteJournal = true;
      await this.#writeDropsAlone();
      throw this.#toRequestError(error);
    }
  }

  async #writeDropsAlone(): Promise<void> {
    const drops = this.#currentDrops;
    if (drops.size === 0) return;
    const records = Array.from(drops, (drop) => ({ drop }));
    try {
      await this.#storage.appendJournal(records, this.#claims.size);
    } catch {
      for (const id of drops) this.#unwrittenDrops.add(id);
    }
    this.#currentDrops = new Set();
  }

  /** Restores the previous promise for the claim. Requests since then belong to the next write. */
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
    this.#onFailure();
    return requestError;
  }
}
