/**
 * Admits and grants the claims of a lock table. A claim enters the queues of its keys one after another, and gets its tokens
 * when it is admitted in the last one.
 *
 *   queued             it has entries in some of its queues, admitted in all but the last
 *   awaiting ceiling   it is admitted in all its queues, but its tokens would reach the ceiling
 *   granted            it has its tokens
 */

import type { Claim } from "../spi/driver.ts";
import { fits } from "./admission.ts";
import type { ClaimRecord } from "./claim-record.ts";
import type { Observer } from "./events.ts";
import type { KeyQueue } from "./key-queue.ts";
import { QueueEntry } from "./key-queue.ts";
import { TokenIssuer } from "./token-issuer.ts";

export class Granter {
  readonly tokenIssuer: TokenIssuer;
  readonly #observer: Observer;
  readonly #awaitingCeiling = new Set<ClaimRecord>();
  /** Called on a grant to a claim that had to wait. */
  readonly #notify: (record: ClaimRecord) => void;
  #lastArrival = 0;
  #now = 0;
  #isPaused = false;

  constructor(ceiling: number, observer: Observer, notify: (record: ClaimRecord) => void) {
    this.tokenIssuer = new TokenIssuer(ceiling);
    this.#observer = observer;
    this.#notify = notify;
  }

  advanceClock(now: number, micros: number): void {
    this.#now = now;
    this.tokenIssuer.advance(micros);
  }

  /** Would the claim be admitted in all its queues if it arrived now? */
  canAdmitNow(claim: Claim): boolean {
    return (
      !this.#isPaused && claim.locks.every((spec) => this.tokenIssuer.queues.get(spec.key)?.hasRoomFor(spec) ?? true)
    );
  }

  /** Would the claim fit beside the holders of its keys, regardless of waiters? */
  fitsBesideHolders(claim: Claim): boolean {
    return claim.locks.every((spec) => fits(this.tokenIssuer.queues.get(spec.key)?.usedPermits ?? 0, spec));
  }

  /** Returns the next arrival number, or the given one of a claim that arrived before a restart (0: none). */
  nextArrival(arrival: number): number {
    this.#lastArrival = Math.max(this.#lastArrival + 1, this.tokenIssuer.clock, arrival);
    return arrival || this.#lastArrival;
  }

  /** Enters the claim's next queues, one after another, as far as it is admitted; grants it when it is admitted in all. */
  advance(record: ClaimRecord): void {
    const { locks } = record.claim;
    while (record.entries.length < locks.length) {
      const isFirst = record.entries.length === 0;
      const spec = locks[record.entries.length] as (typeof locks)[number];
      const queue = this.tokenIssuer.getOrCreateQueue(spec.key);
      const entry = new QueueEntry(
        queue,
        record,
        spec.permits,
        spec.limit,
        isFirst ? record.arrival : ++this.#lastArrival,
      );
      record.addEntry(entry);
      queue.enqueue(entry);
      // admit only this entry: others are admitted by the caller that freed the permits (#admitFrom)
      if (this.#isPaused || !queue.tryAdmit(entry)) return;
    }
    this.#grant(record);
  }

  /** Adds a claim to all its queues as held, with these tokens, without the admission rule. */
  restoreHeld(record: ClaimRecord, token: number, tokens: number): void {
    const { claim } = record;
    record.token = token;
    record.tokenCount = tokens;
    record.heldAt = this.#now;
    this.tokenIssuer.recordIssued(claim, token + tokens - 1);
    for (const spec of claim.locks) {
      const entry = new QueueEntry(
        this.tokenIssuer.getOrCreateQueue(spec.key),
        record,
        spec.permits,
        spec.limit,
        record.arrival,
      );
      record.addEntry(entry);
      entry.queue.insertAdmitted(entry);
      entry.queue.addHolder(record);
    }
    this.#observer.onEvent("reclaimed", record, this.#now);
  }

  /** Removes a claim from its queues; admitNext() must follow. */
  leaveQueues(record: ClaimRecord): void {
    this.#awaitingCeiling.delete(record);
    for (const entry of record.entries) {
      if (entry.isAdmitted || !record.isSuspended) entry.queue.remove(entry); // a suspended entry is not in its queue
    }
  }

  /** Admits waiting claims in the queues that a claim has left. */
  admitNext(record: ClaimRecord): void {
    for (const { queue } of record.entries) this.#admitFrom(queue);
  }

  /** Takes a waiting entry out of its queue, so that grants pass it by. */
  suspendWaiter(record: ClaimRecord): void {
    const entry = record.entries.at(-1);
    if (entry === undefined || entry.isAdmitted || record.isSuspended) return;
    record.isSuspended = true;
    entry.queue.remove(entry);
    this.#admitFrom(entry.queue);
  }

  /** Puts a suspended entry back at the position of its arrival. */
  resumeWaiter(record: ClaimRecord): void {
    if (!record.isSuspended) return;
    record.isSuspended = false;
    const previous = record.entries.at(-1) as QueueEntry;
    const entry = new QueueEntry(
      this.tokenIssuer.getOrCreateQueue(previous.queue.key),
      record,
      previous.permits,
      previous.limit,
      previous.arrival,
    );
    record.entries = record.entries.with(-1, entry);
    entry.queue.enqueue(entry);
    this.#admitFrom(entry.queue);
  }

  /** Tokens up to (not including) this may be granted from now on. */
  raiseTokenCeiling(ceiling: number): void {
    this.tokenIssuer.ceiling = ceiling;
    if (this.#isPaused) return; // resumeGrants() grants them later
    for (const record of [...this.#awaitingCeiling]) {
      this.#awaitingCeiling.delete(record);
      this.#grant(record);
      if (record.isHeld) this.#notify(record);
    }
  }

  /** The ceiling that the claims awaiting one need; 0: there are none. */
  get requiredTokenCeiling(): number {
    let ceiling = 0;
    for (const { claim } of this.#awaitingCeiling)
      ceiling = Math.max(ceiling, this.tokenIssuer.peekNext(claim) + claim.tokenCount);
    return ceiling;
  }

  pauseGrants(): void {
    this.#isPaused = true;
  }

  resumeGrants(): void {
    this.#isPaused = false;
    this.raiseTokenCeiling(this.tokenIssuer.ceiling);
    for (const queue of this.tokenIssuer.queues.values()) this.#admitFrom(queue);
  }

  /** Admits the next claims of this queue, and advances each to its next queues. */
  #admitFrom(queue: KeyQueue): void {
    for (let entry = this.#isPaused ? null : queue.admitNext(); entry !== null; entry = queue.admitNext()) {
      this.advance(entry.record);
      if (entry.record.isHeld) this.#notify(entry.record);
    }
    this.tokenIssuer.forgetQueue(queue);
  }

  #grant(record: ClaimRecord): void {
    const token = this.tokenIssuer.issue(record);
    if (token === null) {
      this.#awaitingCeiling.add(record);
      return;
    }
    record.token = token;
    record.tokenCount = record.claim.tokenCount;
    record.heldAt = this.#now;
    for (const { queue } of record.entries) queue.addHolder(record);
    this.#observer.onEvent("granted", record, this.#now);
  }
}
