/**
 * The journal: the claims that come back after a crash, since a restart does not wait for them. In memory they are as
 * the file has them after all pending writes.
 *
 * - One write at a time: requests that arrive during a write share the next one.
 * - A failed put is refused, and what the file promised about its claim before remains.
 * - A failed drop is repeated, because its claim has ended: at once in the room that the storage keeps for it, also on
 *   a full disk (storage.ts), or else by the next write.
 * - After a failed write the contents of the file are unknown, except that they promise no less than before. The next
 *   write replaces the file.
 */

import type { ClaimId } from "../../spi/driver.ts";
import type { RequestError } from "../request-error.ts";
import type { JournalRecord, SavedClaim, Storage } from "./storage.ts";

/** The file is rewritten when it has this many records more than twice the number of its claims. */
const COMPACTION_SLACK = 1_000;

const ignore = (): void => undefined;

export interface JournalOptions {
  readonly storage: Pick<Storage, "appendJournal" | "rewriteJournal">;
  /** The claims that the file has at the start. */
  readonly claims: Iterable<SavedClaim>;
  /** Called after a failed write, which retry() must repeat. Returns the error for the callers. */
  readonly onFailure: (error: unknown) => RequestError;
}

/** A record waiting to be written. */
interface QueuedRecord {
  readonly record: JournalRecord;
  /** The journal's previous record of a claim that is written again. */
  readonly previous: SavedClaim | undefined;
}

export class Journal {
  readonly #storage: JournalOptions["storage"];
  readonly #onFailure: JournalOptions["onFailure"];
  readonly #claims = new Map<ClaimId, SavedClaim>();
  #recordCount: number;
  #mustRewrite = false;
  #queue: QueuedRecord[] = [];
  /** Ended claims that the file may still have: those that no write has taken yet, and those of the current write. */
  #unwrittenDrops = new Set<ClaimId>();
  #currentDrops: ReadonlySet<ClaimId> = new Set();
  #currentWrite: Promise<void> | null = null;
  /** Begins when the current write has ended. */
  #nextWrite: Promise<void> | null = null;

  constructor({ storage, claims, onFailure }: JournalOptions) {
    this.#storage = storage;
    this.#onFailure = onFailure;
    for (const saved of claims) this.#claims.set(saved.claim.id, saved);
    this.#recordCount = this.#claims.size;
  }

  /** The claim as the file has it after all pending writes; undefined: it has none. */
  find(id: ClaimId): SavedClaim | undefined {
    return this.#claims.get(id);
  }

  /** Settles when the claim would come back after a crash. @throws RequestError if the disk fails */
  put(saved: SavedClaim): Promise<void> {
    const previous = this.#claims.get(saved.claim.id);
    this.#claims.set(saved.claim.id, saved);
    return this.#append({ put: saved }, previous);
  }

  /** Settles when the claim would not come back after a crash. @throws RequestError if the disk fails */
  drop(id: ClaimId): Promise<void> {
    if (!this.#claims.delete(id)) return Promise.resolve();
    this.#unwrittenDrops.add(id);
    return this.#append({ drop: id });
  }

  /** True if the claim has ended, but would come back after a crash, as far as known. */
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

  /** True if a write has failed and was not made up for yet. */
  get isFailing(): boolean {
    return this.#mustRewrite;
  }

  /** Repeats a failed write, which would otherwise stay undone until another write is requested. */
  async retry(): Promise<void> {
    if (this.#mustRewrite) await this.#beginNextWrite();
  }

  get isWriting(): boolean {
    return this.#currentWrite !== null || this.#nextWrite !== null;
  }

  /** Settles when the pending writes have ended. */
  async waitUntilIdle(): Promise<void> {
    await Promise.allSettled([this.#currentWrite, this.#nextWrite]);
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
    await this.#currentWrite?.catch(ignore);
    this.#nextWrite = null;
    const queued = this.#queue;
    this.#queue = [];
    this.#currentWrite = this.#write(queued).finally(() => {
      this.#currentWrite = null;
    });
    await this.#currentWrite;
  }

  async #write(queued: readonly QueuedRecord[]): Promise<void> {
    this.#currentDrops = this.#unwrittenDrops;
    this.#unwrittenDrops = new Set();
    try {
      this.#recordCount += queued.length;
      if (this.#mustRewrite || this.#recordCount > 2 * this.#claims.size + COMPACTION_SLACK) {
        const claims = [...this.#claims.values()];
        await this.#storage.rewriteJournal(claims.map((put) => ({ put })));
        this.#recordCount = claims.length;
        this.#mustRewrite = false;
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
      this.#mustRewrite = true;
      await this.#writeDropsAlone();
      throw this.#onFailure(error);
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
}
