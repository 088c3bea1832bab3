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

import type { Entry } from "../core/entry.ts";
import type { ClaimId } from "../spi/driver.ts";
import { goingAway, Refusal } from "./backend.ts";
import type { Disk, JournalRecord, SavedClaim, SavedState } from "./disk.ts";

/** How far the bound of tokens is kept ahead of their clock, in microseconds. */
export const AHEAD_MICROS = 30_000_000;
/** How long a disk that failed is left alone. */
const RETRY_MS = 1_000;
const ignore = (): void => undefined;
/** The journal is written anew when it has grown by this many records beyond twice what it has to say. */
const SLACK = 1_000;

export interface LedgerOptions {
  readonly disk: Disk;
  readonly now: () => number;
  readonly state: SavedState;
  /** What was granted before the start may be held, although nothing here says so. */
  readonly reclaims: boolean;
  readonly journal: Iterable<SavedClaim>;
}

/** A record to be written. */
interface Queued {
  readonly record: JournalRecord;
  /** What the journal said of a claim that is put once more. */
  readonly before: SavedClaim | undefined;
}

export class Ledger {
  bound: number;
  longestMs: number;
  readonly #disk: Disk;
  readonly #now: () => number;
  /** What does not change in a start. */
  readonly #start: Pick<SavedState, "id" | "generation" | "remote" | "room">;
  #strangers: boolean;
  #wantedBound: number;
  /** The longest short lease from before the start, or what the start has set aside for those to come. */
  #beforeMs: number;
  /** Those from before may still be held. */
  #reclaims: boolean;
  /** The longest short lease that was asked for since the start, or came back from disk. */
  #askedMs = 0;
  #saving: Promise<void> | null = null;
  /** What the journal says when all that was asked for is written. */
  readonly #kept = new Map<ClaimId, SavedClaim>();
  #records: number;
  #queue: Queued[] = [];
  /** Settles, without a failure, when the write under way has ended. */
  #last: Promise<void> = Promise.resolve();
  #next: Promise<void> | null = null;
  #failure: { readonly error: Refusal; readonly until: number } | null = null;
  #finishing = false;

  /** Called when a write has failed: what it was for is to be tried again. */
  failed: () => void = () => undefined;

  constructor({ disk, now, state, reclaims, journal }: LedgerOptions) {
    this.#disk = disk;
    this.#now = now;
    const { id, generation, remote, room } = state;
    this.#start = { id, generation, remote, ...(room && { room }) };
    this.#strangers = state.strangers;
    this.bound = this.#wantedBound = state.bound;
    this.longestMs = this.#beforeMs = state.longestMs;
    this.#reclaims = reclaims;
    for (const saved of journal) this.#kept.set(saved.claim.id, saved);
    this.#records = this.#kept.size;
  }

  /** Settles when tokens below `bound` and short leases of `longestMs` are promised. @throws Refusal if the disk fails */
  async reserve(bound: number, longestMs: number): Promise<void> {
    this.asked(longestMs);
    this.#wantedBound = Math.max(this.#wantedBound, bound);
    while (this.bound < bound || this.longestMs < longestMs) {
      this.#check();
      this.#saving ??= this.#save();
      await this.#saving;
    }
  }

  /** A short lease of this length may be granted from now on, whatever becomes of those from before the start. */
  asked(longestMs: number): void {
    if (longestMs > this.#askedMs) this.#askedMs = longestMs;
  }

  /** Would a restart wait for longer leases than any that can be held? */
  get waitsTooLong(): boolean {
    return !this.#reclaims && this.#askedMs > 0 && this.#beforeMs > this.#askedMs;
  }

  /** A restart is to wait only for leases that can be held. */
  lower(): void {
    if (!this.waitsTooLong) return;
    this.#beforeMs = 0;
    this.#saveSoon();
  }

  /** All who may hold something from before have had their time to say so. */
  reclaimed(): void {
    if (!this.#reclaims) return;
    this.#reclaims = false;
    this.#strangers = false;
    if (this.waitsTooLong) this.#beforeMs = 0;
    this.#saveSoon();
  }

  /** Others than this state knows of may hold something, with leases of up to this length. */
  outdated(longestMs: number): void {
    this.#reclaims = true;
    this.#strangers = true;
    this.#beforeMs = Math.max(this.#beforeMs, longestMs);
    this.#saveSoon();
  }

  /** Settles when the claim would come back after a crash. @throws Refusal if the disk fails */
  put(saved: SavedClaim): Promise<void> {
    const before = this.#kept.get(saved.claim.id);
    this.#kept.set(saved.claim.id, saved);
    return this.#append({ put: saved }, before);
  }

  /** Settles when the claim would not come back any more. */
  drop(id: ClaimId): Promise<void> {
    if (!this.#kept.delete(id)) return Promise.resolve();
    return this.#append({ drop: id });
  }

  /** Does the journal have the claim, or will it with the writes under way? revoked: and that it was. */
  has(id: ClaimId, revoked: Entry["revoked"] = null): boolean {
    const kept = this.#kept.get(id);
    return kept !== undefined && (revoked === null || kept.revoked !== false);
  }

  /** Likewise as a detached one? */
  hasDetached(id: ClaimId): boolean {
    return this.#kept.get(id)?.detached === true;
  }

  /** A write has failed, and what it was for does not stand on the disk yet. */
  get failing(): boolean {
    return this.#records === Number.POSITIVE_INFINITY || (this.#saving === null && this.#isBehind());
  }

  /** Writes what failed once more, so that nothing is left undone because nobody happens to ask for another write. */
  async retry(): Promise<void> {
    if (this.#records === Number.POSITIVE_INFINITY) this.#next ??= this.#writeNext();
    if (this.#isBehind()) this.#saving ??= this.#save();
    await Promise.all([this.#saving, this.#next]);
  }

  get #wantedMs(): number {
    return Math.max(this.#beforeMs, this.#askedMs);
  }

  #isBehind(): boolean {
    return this.bound < this.#wantedBound || this.longestMs < this.#wantedMs;
  }

  /** Writes the last state of this start. Nothing else is written any more, or it would be written over this. */
  async finish(state: Pick<SavedState, "bound" | "clean">): Promise<void> {
    this.#finishing = true;
    do await this.settled();
    while (this.#saving !== null || this.#next !== null);
    await this.#disk.save({ ...this.#start, ...state, longestMs: this.#wantedMs, strangers: this.#strangers });
  }

  /** Settles when nothing is being written. */
  async settled(): Promise<void> {
    await Promise.allSettled([this.#saving, this.#last, this.#next]);
  }

  async #save(): Promise<void> {
    const bound = this.#wantedBound;
    const longestMs = this.#wantedMs;
    // of a smaller one it is not known, until it is written, whether it stands there
    this.longestMs = Math.min(this.longestMs, longestMs);
    try {
      await this.#disk.save({ ...this.#start, bound, longestMs, strangers: this.#strangers, clean: null });
      this.bound = Math.max(this.bound, bound);
      this.longestMs = longestMs;
      this.#failure = null;
    } catch (error) {
      throw this.#refusalOf(error);
    } finally {
      this.#saving = null;
    }
  }

  /** Writes the state once more, after what is being written now. Nobody waits for it; what matters is tried again (`failed`). */
  #saveSoon(): void {
    const save = (): void => {
      if (!this.#finishing) this.#saving ??= this.#save();
      this.#saving?.catch(ignore);
    };
    Promise.resolve(this.#saving).then(save, save);
  }

  #append(record: JournalRecord, before?: SavedClaim): Promise<void> {
    this.#queue.push({ record, before });
    this.#next ??= this.#writeNext();
    return this.#next;
  }

  /** One write for all who have come by the time the one under way has ended, and at least until the end of this turn. */
  async #writeNext(): Promise<void> {
    await this.#last;
    this.#next = null;
    const queued = this.#queue;
    this.#queue = [];
    const written = this.#write(queued);
    this.#last = written.then(ignore, ignore);
    await written;
  }

  async #write(queued: readonly Queued[]): Promise<void> {
    try {
      this.#records += queued.length;
      if (this.#records > 2 * this.#kept.size + SLACK) {
        const kept = [...this.#kept.values()];
        await this.#disk.rewrite(kept.map((put) => ({ put })));
        this.#records = kept.length;
      } else {
        await this.#disk.append(queued.map(({ record }) => record));
      }
    } catch (error) {
      // what was to be put is refused; what was to be dropped is, by the next write, which writes all anew
      for (const { record, before } of [...queued].reverse()) if ("put" in record) this.#undo(record.put, before);
      this.#records = Number.POSITIVE_INFINITY;
      throw this.#refusalOf(error);
    }
  }

  /** What was promised of the claim before stays promised; what has been asked for since is the next write's. */
  #undo(put: SavedClaim, before: SavedClaim | undefined): void {
    const { id } = put.claim;
    if (this.#kept.get(id) !== put) return;
    if (before === undefined) this.#kept.delete(id);
    else this.#kept.set(id, before);
  }

  #check(): void {
    if (this.#finishing) throw goingAway();
    if (this.#failure !== null && this.#now() < this.#failure.until) throw this.#failure.error;
  }

  #refusalOf(error: unknown): Refusal {
    const code = (error as NodeJS.ErrnoException | null)?.code ?? "an error";
    const refusal = new Refusal(
      "DISK",
      `the server cannot write its state (${code}); it grants nothing that needs it`,
      error,
    );
    this.#failure = { error: refusal, until: this.#now() + RETRY_MS };
    this.failed();
    return refusal;
  }
}
