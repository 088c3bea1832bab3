/** The next state of a document: what the operations of one write change, on a copy. Pure. */

import type { EndReason } from "../../errors.ts";
import { StoreRefusedError } from "../../errors.ts";
import { countAdmitted } from "../../lock-table/admission.ts";
import { nextToken } from "../../lock-table/token-rule.ts";
import type { ClaimId } from "../../spi/driver.ts";
import type { Entry, LockDocument, Tombstone } from "./format.ts";
import { MAX_ENTRY_BYTES } from "./format.ts";
import type { Stopwatches } from "./stopwatches.ts";
import { MAX_DOCUMENT_BYTES } from "./store.ts";

/** Beyond this many tombstones the oldest are dropped: late `claim` calls are rare, and an abandoned claim ends with its lease. */
const MAX_TOMBSTONES = 500;

/** Kept free of entries: for the tombstones, so that a release always fits. */
const RESERVED_BYTES = 32 * 1_024;

/** So many marks are kept: a process whose write had no answer finds it unless so many others followed before it could read. */
const MAX_MARKS = 16;

/**
 * So far ahead of the last token may a floor be: more than a store loses that comes back from an old copy. A wrong floor cannot use
 * up the tokens, which are exact up to 2^53.
 */
const MAX_FLOOR_LEAD: number = 2 ** 24;
const MAX_TOKEN: number = 2 ** 52;

/** What a claim brings to its entry. */
export type NewEntry = Omit<Entry, "renewedBy" | "leaseMs" | "ageMs" | "token" | "isRevoked" | "isDetached">;

export class Draft {
  readonly #base: LockDocument;
  readonly #entries: Map<ClaimId, Entry>;
  readonly #tombstones: Map<ClaimId, Tombstone>;
  readonly #writeNumber: number;
  #lastToken: number;
  #hasChanged = false;
  /** Computed for the first claim that is placed: at most so many bytes do the entries take, with these keys and labels. */
  #size = 0;
  readonly #texts = new Set<string>();

  constructor(base: LockDocument) {
    this.#base = base;
    this.#entries = new Map(base.entries);
    this.#tombstones = new Map(base.tombstones);
    this.#writeNumber = base.writeNumber + 1;
    this.#lastToken = base.lastToken;
  }

  get hasChanged(): boolean {
    return this.#hasChanged;
  }

  find(id: ClaimId): Entry | undefined {
    return this.#entries.get(id);
  }

  /** Entries, front first. */
  queueOf(key: string): Entry[] {
    return [...this.#entries.values()].filter((entry) => entry.key === key);
  }

  /** Ends what has been seen unchanged for its whole lease. */
  removeOver(stopwatches: Stopwatches, now: number): void {
    for (const [id, entry] of this.#entries)
      if (stopwatches.isOver(id, entry, now)) this.remove(entry, entry.isRevoked ? "revoked" : "expired");
    // no reason for a write: they go with the next one
    for (const [id, tombstone] of this.#base.tombstones)
      if (stopwatches.isOver(id, tombstone, now)) this.#tombstones.delete(id);
  }

  /**
   * Places the claim at the end of its queue, unless it must not wait and would have to, or has ended.
   * @throws StoreRefusedError if its floor is wrong, or the document has no room for it
   */
  place(claim: NewEntry, name: string): void {
    if (this.#tombstones.has(claim.id)) return;
    if (claim.floor > Math.min(this.#lastToken + MAX_FLOOR_LEAD, MAX_TOKEN))
      throw new StoreRefusedError(
        `${name}: its tokens are far below those seen on this key before: set tokenBase if the locks were moved from another store`,
        { keys: [claim.key] },
      );
    const entry = { ...claim, isRevoked: false, isDetached: false, leaseMs: claim.ttlMs, ageMs: 0, token: 0 };
    const queue = [...this.queueOf(claim.key), entry];
    if (!claim.wait && countAdmitted(queue) < queue.length) return;
    if (this.#size === 0) for (const one of this.#entries.values()) this.#count(one);
    if (this.#size + this.#sizeOf(entry) > MAX_DOCUMENT_BYTES - RESERVED_BYTES)
      throw new StoreRefusedError(`${name} is full: ${this.#entries.size} claims hold or wait for its keys`, {
        keys: [claim.key],
      });
    this.#set({ ...entry, renewedBy: this.#writeNumber });
    this.#count(entry);
  }

  /** Restarts its lease. */
  renew(entry: Entry, ageMs: number): void {
    this.#set({ ...entry, renewedBy: this.#writeNumber, leaseMs: entry.ttlMs, ageMs });
  }

  detach(entry: Entry, leaseMs: number, ageMs: number): void {
    this.#set({ ...entry, renewedBy: this.#writeNumber, leaseMs, ageMs, isDetached: true });
  }

  /** It cannot be renewed from now on, and keeps its place until it is released or over. */
  revoke(entry: Entry): void {
    this.#set({ ...entry, isRevoked: true });
  }

  /** @param reason kept for a while, for clients that ask about it */
  remove(entry: Entry, reason: EndReason | null): void {
    this.#entries.delete(entry.id);
    this.#hasChanged = true;
    if (reason !== null) this.bury(entry.id, reason, entry.ttlMs);
  }

  bury(id: ClaimId, reason: EndReason, leaseMs: number): void {
    this.#tombstones.delete(id); // so that it is the newest
    this.#tombstones.set(id, { reason, leaseMs, renewedBy: this.#writeNumber });
    this.#hasChanged = true;
    const [oldest] = this.#tombstones.keys();
    if (this.#tombstones.size > MAX_TOMBSTONES) this.#tombstones.delete(oldest as ClaimId);
  }

  /** Gives tokens to the claims that are admitted now. A grant restarts no lease: its claim has not been renewed by it. */
  admit(): void {
    const waiting = [...this.#entries.values()].filter(({ token }) => token === 0);
    for (const key of new Set(waiting.map((entry) => entry.key))) {
      const queue = this.queueOf(key);
      for (const entry of queue.slice(0, countAdmitted(queue))) {
        if (entry.token !== 0) continue;
        const token = nextToken(this.#lastToken, BigInt(entry.floor), 0);
        this.#lastToken = token + entry.tokenCount - 1;
        this.#set({ ...entry, token });
      }
    }
  }

  /** The document to write, with a mark that no other write has. */
  finish(mark: string): LockDocument {
    return {
      ...this.#base,
      writeNumber: this.#writeNumber,
      marks: [...this.#base.marks, mark].slice(-MAX_MARKS),
      lastToken: this.#lastToken,
      entries: this.#entries,
      tombstones: this.#tombstones,
    };
  }

  #count(entry: NewEntry): void {
    this.#size += this.#sizeOf(entry);
    for (const text of [entry.key, entry.label]) this.#texts.add(text);
  }

  /** At most so many bytes does the entry add, whatever numbers it has later. */
  #sizeOf({ id, key, label }: NewEntry): number {
    const texts = [...new Set([key, label])].filter((text) => !this.#texts.has(text));
    return texts.reduce((sum, text) => sum + Buffer.byteLength(text) + 2, id.length + MAX_ENTRY_BYTES);
  }

  #set(entry: Entry): void {
    this.#entries.set(entry.id, entry);
    this.#hasChanged = true;
  }
}
