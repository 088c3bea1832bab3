/**
 * One document as a lock table: as it is stored, and then as the operations of one write change it. Pure.
 *
 * The table has the rules: queues, admission, recall, revoked and detached claims. Two things are those of a document:
 * - Its time for tokens is one above its last token, of whatever key. So an idle key leaves nothing.
 * - A lease ends by the rule of the DynamoDB lock client: when this process has seen it unchanged for as long, by its own monotonic
 *   clock. No two clocks are compared.
 */

import { StoreRefusedError } from "../../errors.ts";
import type { ClaimRecord } from "../../lock-table/key-queue.ts";
import type { Timestamps } from "../../lock-table/table.ts";
import { LockTable } from "../../lock-table/table.ts";
import type { Answer, Claim, ClaimId, Release, RevokeTarget } from "../../spi/driver.ts";
import type { Entry, LockDocument, Renewal, StoredLocks } from "./format.ts";
import { MAX_DOCUMENT_BYTES } from "./store.ts";

/** Clock rates may differ by 1 %. */
const RATE_ALLOWANCE = 1.01;

/** Beyond this many tombstones the oldest are dropped: late `claim` calls are rare, and an abandoned claim ends with its lease. */
const MAX_TOMBSTONES = 500;

/** Kept free of entries: for the tombstones, so that a release always fits. */
const RESERVED_BYTES = 40 * 1_024;
/** An entry takes less, beside its key and its label; and one that is there grows by less, when it gets its token and its age. */
const MAX_ENTRY_BYTES = 180;
const MAX_GROWTH_BYTES = 32;

/**
 * So far ahead of the last token may a floor be: more than a store loses that comes back from an old copy. A wrong floor cannot use
 * up the tokens, which are exact up to 2^53.
 */
const MAX_FLOOR_LEAD: number = 2 ** 24;

/** So many marks are kept: a process whose write had no answer finds it unless so many others followed before it could read. */
const MAX_MARKS = 16;

/** Since when one process has seen each entry of a document unchanged. */
export class Stopwatches {
  /**
   * By the id and the number of the write that renewed it. A number is never used again, so a claim that is placed again with the same
   * id gets a new stopwatch.
   */
  #since = new Map<string, number>();

  /** @param now when the read that brought the document has returned, or the write that made it */
  observe({ queues, tombstones }: LockDocument, now: number): void {
    const all = [...queues.flatMap(([, entries]) => entries), ...tombstones];
    const names = all.map(([id, renewal]) => nameOf(id, renewal));
    this.#since = new Map(names.map((name) => [name, this.#since.get(name) ?? now]));
  }

  /** By a clock that may run 1 % faster than its holder's. */
  unchangedMs(id: ClaimId, renewal: Renewal, now: number): number {
    return (now - (this.#since.get(nameOf(id, renewal)) ?? now)) / RATE_ALLOWANCE;
  }
}

function nameOf(id: ClaimId, [renewedBy]: Renewal): string {
  return `${id} ${renewedBy}`;
}

/** Adds the claims of a document to a table that grants nothing, also those that are over, which its next advance() removes. */
export function restoreClaims(
  table: LockTable,
  { queues, tombstones }: LockDocument,
  stopwatches: Stopwatches,
  now: number,
  tokenBase: number,
): void {
  for (const [key, entries] of queues) {
    for (const [id, renewal, label, permits, limit, ttlMs, tokenCount, floor, wait, recall, ...state] of entries) {
      const [isRevoked, isDetached, token] = state;
      const [, leaseMs, ageMs] = renewal;
      const unchangedMs = stopwatches.unchangedMs(id, renewal, now);
      const remainingMs = leaseMs - unchangedMs;
      const locks = [{ key, permits, limit }] as const;
      const claim = { id, locks, ttlMs, tokenCount, floor: BigInt(floor), wait, label, recall };
      table.reclaim(claim, { owner: null }, { token: token && token + tokenBase, tokenCount, remainingMs });
      const record = table.records.get(id) as ClaimRecord;
      record.placedAt = now - ageMs - unchangedMs;
      record.isDetached = isDetached;
      record.revokeReason = isRevoked ? "revoked" : null;
    }
  }
  for (const [id, renewal, reason] of tombstones)
    table.tombstones.add(id, reason, now + renewal[1] - stopwatches.unchangedMs(id, renewal, now));
}

export class Draft {
  readonly table: LockTable;
  /** What it was made from. */
  readonly base: StoredLocks;
  /** It is to be written. */
  hasChanged = false;
  readonly #name: string;
  /** The time that its leases are judged by; that for tokens is the last token. */
  readonly time: Timestamps;
  readonly #tokenBase: number;
  readonly writeNumber: number;
  /** Of the claims that were stored, and of those that this write renews. */
  readonly #renewals: Map<ClaimId, Renewal>;
  #freeBytes: number;

  /** The document as it is stored. @param name begins the messages */
  constructor(name: string, stored: StoredLocks, stopwatches: Stopwatches, now: number, tokenBase: number) {
    const { document, byteCount } = stored;
    this.#name = name;
    this.base = stored;
    this.#tokenBase = tokenBase;
    this.writeNumber = document.writeNumber + 1;
    this.time = { now, micros: document.lastToken + tokenBase + 1 };
    const onEvent = (): void => {
      this.hasChanged = true;
    };
    this.table = new LockTable({ maxTombstones: MAX_TOMBSTONES, observer: { onEvent } });
    this.table.pauseGrants();
    this.table.advance(this.time);
    restoreClaims(this.table, document, stopwatches, now, tokenBase);
    const entries = document.queues.flatMap(([, queue]) => queue);
    this.#renewals = new Map(entries.map(([id, renewal]) => [id, renewal]));
    this.#freeBytes = MAX_DOCUMENT_BYTES - RESERVED_BYTES - byteCount - MAX_GROWTH_BYTES * this.table.records.size;
    this.hasChanged = false;
  }

  /** Ends what is over, and grants what then fits. A grant restarts no lease: its claim has not been renewed by it. */
  start(): void {
    this.table.advance(this.time);
    this.table.resumeGrants();
  }

  /** @throws StoreRefusedError if its floor is wrong, or the document has no room for it */
  claim(claim: Claim): void {
    if (!this.table.records.has(claim.id)) this.#checkNew(claim);
    this.table.claim(claim, { owner: null }, this.time);
    this.#restartLease(claim.id);
  }

  renew(id: ClaimId): void {
    this.table.renew(id, null, this.time);
    this.#restartLease(id);
  }

  release({ claim, hasUnansweredClaim }: Release): boolean {
    this.hasChanged ||= hasUnansweredClaim;
    return this.table.release(claim.id, this.time, hasUnansweredClaim ? claim.ttlMs : undefined);
  }

  detach(id: ClaimId, remainingMs?: number): boolean {
    const wasHeld = this.table.detach(id, this.time, remainingMs);
    if (wasHeld) this.#restartLease(id);
    return wasHeld;
  }

  revoke({ key, token, now: isRemoval }: RevokeTarget): boolean {
    return this.table.revoke(key, Number(token), isRemoval, this.time);
  }

  /** As the table counts: a lease from when this process saw its renewal. */
  answerFor(id: ClaimId): Answer {
    const record = this.table.records.get(id);
    return record === undefined ? this.table.tombstones.noneAnswer(id) : this.table.answerFor(record);
  }

  /** Of a claim that is in the document, or was when it was read. */
  renewalOf(id: ClaimId): Renewal {
    return this.#renewals.get(id) as Renewal;
  }

  /** The document to write, with a mark that no other write has. */
  finish(mark: string): LockDocument {
    const { document } = this.base;
    const queues = [...this.table.queues.values()];
    const lastTokens = queues.map(({ lastToken }) => lastToken - this.#tokenBase);
    const stillNoted = new Map(document.tombstones.map((note) => [note[0], note]));
    return {
      ...document,
      writeNumber: this.writeNumber,
      marks: [...document.marks, mark].slice(-MAX_MARKS),
      lastToken: Math.max(document.lastToken, ...lastTokens),
      queues: queues
        .filter(({ entries }) => entries.size > 0)
        .map(({ key, entries }) => [key, Array.from(entries, ({ record }) => this.#toEntry(record))]),
      tombstones: Array.from(this.table.tombstones, ({ id, reason, dueAt }) => {
        const leaseMs = Math.ceil(dueAt - this.time.now);
        return stillNoted.get(id) ?? [id, [this.writeNumber, leaseMs, 0], reason];
      }),
    };
  }

  #checkNew(claim: Claim): void {
    const [{ key }] = claim.locks;
    if (Number(claim.floor) > this.time.micros + MAX_FLOOR_LEAD)
      throw new StoreRefusedError(
        `${this.#name}: its tokens are far below those seen on this key before: set tokenBase if the locks were moved from another store`,
        { keys: [key] },
      );
    this.#freeBytes -= MAX_ENTRY_BYTES + Buffer.byteLength(JSON.stringify([key, claim.label]));
    if (this.#freeBytes < 0)
      throw new StoreRefusedError(
        `${this.#name} is full: ${this.table.records.size} claims hold or wait for its keys`,
        { keys: [key] },
      );
  }

  #restartLease(id: ClaimId): void {
    const record = this.table.records.get(id);
    if (record === undefined || record.revokeReason !== null) return;
    const { now } = this.time;
    const leaseMs = Math.min(Number(record.claim.ttlMs), Math.ceil(record.expiresAt - now));
    const ageMs = Math.round(now - record.placedAt);
    this.#renewals.set(id, [this.writeNumber, leaseMs, ageMs]);
    this.hasChanged = true;
  }

  #toEntry({ claim, token, revokeReason, isDetached }: ClaimRecord): Entry {
    const { id, locks, label, ttlMs, tokenCount, floor, wait, recall = false } = claim;
    const [{ permits, limit }] = locks;
    return [
      ...([id, this.renewalOf(id), label, permits, limit, Number(ttlMs), tokenCount, Number(floor)] as const),
      ...([wait, recall, revokeReason !== null, isDetached, token && token - this.#tokenBase] as const),
    ];
  }
}
