/**
 * The lock table: queues of claims by key, claims by id, leases, tokens, and notifications to push. Pure: every method gets
 * the time. `Owner` is the type of the receivers of notifications (a session, a client).
 *
 *   queued             a claim has entries in some of its queues, admitted in all but the last
 *   awaiting ceiling   it is admitted in all its queues, but its tokens would reach the ceiling
 *   granted            it has its tokens
 *
 * Invariants
 * - A queue has admitted entries, then waiting ones by arrival (lock-table/key-queue.ts). A claim enters a queue only when it
 *   is admitted in the queue of its previous key, so claims that take keys in order never deadlock.
 * - A claim is held from the moment it is admitted in its last queue and has its tokens (lock-table/token-issuer.ts). A grant
 *   never extends the lease: the client counts its lease from a call it sent, and it has sent none for the grant.
 * - Expired claims are removed before any claim is admitted, so that no expired claim is granted.
 * - While paused (a restarted server in recovery) no claim is admitted.
 */

import type { Answer, Claim, ClaimId } from "../spi/driver.ts";
import { DeadlineHeap } from "../util/deadline-heap.ts";
import { SlotMap } from "../util/slot-map.ts";
import { fits } from "./admission.ts";
import type { Observer } from "./events.ts";
import { NO_OBSERVER } from "./events.ts";
import { ClaimRecord, KeyQueue, QueueEntry } from "./key-queue.ts";
import { findEndAhead, LeaseExpiry } from "./lease-expiry.ts";
import { isFrontWaiter, isRecalled, recallableHolders, recallRecheckMs } from "./recall.ts";
import { nameSuccessors } from "./successors.ts";
import { TokenIssuer } from "./token-issuer.ts";
import { Tombstones } from "./tombstones.ts";

export interface LockTableOptions<Owner> {
  /** The lease in the answers for "session" claims, and the lifetime of their tombstones. Default 30 s. */
  readonly sessionMs?: number;
  /** All tokens are below it; a grant that would reach it waits for raiseTokenCeiling(). Default: no ceiling. */
  readonly tokenCeiling?: number;
  /** The most tombstones, of all clients together. Default: no limit. */
  readonly maxTombstones?: number;
  /** Called when a claim was added, before it enters a queue. Methods, so that a LockTable<Session> is a LockTable, too. */
  onAdded?(record: ClaimRecord<Owner>): void;
  /** Called when a claim was removed, however it ended, before others are admitted. */
  onRemoved?(record: ClaimRecord<Owner>): void;
  /** Receives the events of all claims. Default: none. */
  readonly observer?: Observer<Owner>;
}

/** The times passed to the table's methods. */
export interface Timestamps {
  /** In milliseconds, monotonic: for leases. */
  readonly now: number;
  /** In microseconds, of the wall clock: for tokens only. */
  readonly micros: number;
}

/** Where a claim comes from. */
export interface Origin<Owner> {
  /** The receiver of its notifications; null: there is none. */
  readonly owner: Owner | null;
  /** The account that places it. Default: "", none. */
  readonly account?: string;
  /** That of a claim that waited before a restart. Default: the next one. */
  readonly arrival?: number;
}

/** What must be pushed to a claim's owner: a waiting claim was granted, or is to be asked again, or a claim was revoked or is recalled. */
export interface Notification<Owner> {
  readonly id: ClaimId;
  readonly owner: Owner | null;
  readonly answer: Answer | "recalled" | "recheck";
}

/** The lease of a claim from before a restart. */
export interface SavedLease {
  /** 0: it waits. */
  readonly token: number;
  readonly tokenCount: number;
  readonly remainingMs: number;
}

export class LockTable<Owner = unknown> {
  readonly sessionMs: number;
  readonly records: SlotMap<ClaimId, ClaimRecord<Owner>> = new SlotMap();
  readonly queues: SlotMap<string, KeyQueue<Owner>> = new SlotMap();
  readonly tombstones: Tombstones;
  readonly tokenIssuer: TokenIssuer;
  readonly #leaseExpiry = new LeaseExpiry<Owner>();
  /** Queues that became empty before the clock of the tokens had passed their last token; due at that token. */
  readonly #idleQueues = new DeadlineHeap<KeyQueue<Owner>>();
  readonly #awaitingCeiling = new Set<ClaimRecord<Owner>>();
  readonly #onAdded: NonNullable<LockTableOptions<Owner>["onAdded"]>;
  readonly #onRemoved: NonNullable<LockTableOptions<Owner>["onRemoved"]>;
  readonly #observer: Observer<Owner>;
  #notifications: Notification<Owner>[] = [];
  #now = 0;
  #lastArrival = 0;
  #heldCount = 0;
  #isPaused = false;

  constructor(options: LockTableOptions<Owner> = {}) {
    this.sessionMs = options.sessionMs ?? 30_000;
    this.tombstones = new Tombstones(options.maxTombstones);
    this.#onAdded = options.onAdded ?? (() => undefined);
    this.#onRemoved = options.onRemoved ?? (() => undefined);
    this.#observer = options.observer ?? NO_OBSERVER;
    this.tokenIssuer = new TokenIssuer(options.tokenCeiling ?? Number.POSITIVE_INFINITY);
  }

  /** How many claims wait. */
  get waitingCount(): number {
    return this.records.size - this.#heldCount;
  }

  /** Queues the claim, or finds it and restarts its lease. */
  claim(claim: Claim, origin: Origin<Owner>, time: Timestamps): Answer {
    const record = this.enqueue(claim, origin, time);
    return record === null ? this.tombstones.noneAnswer(claim.id) : this.answerFor(record);
  }

  /** Like claim(), but returns the record of the claim, or null if it was not kept. */
  enqueue(claim: Claim, origin: Origin<Owner>, time: Timestamps): ClaimRecord<Owner> | null {
    this.advance(time);
    const existing = this.records.get(claim.id);
    if (existing !== undefined) {
      this.#extendLease(existing, origin.owner);
      return existing;
    }
    if (this.tombstones.reasonOf(claim.id) !== undefined) return null;
    if (!claim.wait && !this.canAdmitNow(claim)) return null;
    const record = this.#insert(claim, origin);
    this.#enterQueues(record);
    if (record.isHeld) return record;
    if (!claim.wait) {
      this.#removeAndAdmit(record); // free, but the token ceiling blocks it; `wait: false` must leave no trace
      return null;
    }
    this.#observer.onEvent("waiting", record, this.#now);
    return record;
  }

  /** Would the claim be admitted in all its queues if it arrived now? As of the last advance(). */
  canAdmitNow(claim: Claim): boolean {
    return !this.#isPaused && claim.locks.every((spec) => this.queues.get(spec.key)?.hasRoomFor(spec) ?? true);
  }

  /** Would the claim fit beside the holders of its keys, regardless of waiters? */
  fitsBesideHolders(claim: Claim): boolean {
    return claim.locks.every((spec) => fits(this.queues.get(spec.key)?.usedPermits ?? 0, spec));
  }

  /** The answer for a claim, as of the last advance(). */
  answerFor(record: ClaimRecord<Owner>): Answer {
    if (record.revokeReason !== null) return { state: "none", reason: record.revokeReason };
    return toAnswer(record, this.#now, this.sessionMs);
  }

  /** Restarts the lease of a claim. `tokenCount`: how many tokens it should have in all, if it is held. */
  renew(id: ClaimId, owner: Owner | null, time: Timestamps, tokenCount = 0): Answer {
    this.advance(time);
    const record = this.records.get(id);
    if (record === undefined) return this.tombstones.noneAnswer(id);
    this.#extendLease(record, owner);
    if (tokenCount > record.tokenCount && record.isHeld && record.revokeReason === null)
      this.tokenIssuer.extend(record, tokenCount);
    return this.answerFor(record);
  }

  /** Its owner's `maxHold` is half over: it is recalled, since it is about to be revoked. */
  recall(record: ClaimRecord<Owner>): void {
    record.isHoldEnding = true;
    if (record.claim.recall && record.revokeReason === null && !record.isDetached) this.#notify(record, "recalled");
  }

  /** Returns whether the claim existed and was not revoked. `unanswered`: its ttl, if a `claim` call may still be in flight. */
  release(id: ClaimId, time: Timestamps, unanswered?: number | "session"): boolean {
    this.advance(time);
    if (unanswered !== undefined) this.addTombstone(id, unanswered);
    const record = this.records.get(id);
    return record !== undefined && this.remove(record);
  }

  /** Adds a tombstone for a released claim: a late `claim` call with this id must not enter the queue. */
  addTombstone(id: ClaimId, ttlMs: number | "session"): void {
    this.tombstones.add(id, "released", this.#now + this.#toTtlMs(ttlMs));
  }

  /** Like release(), for a record, as of the last advance(). */
  remove(record: ClaimRecord<Owner>): boolean {
    const { claim, isDetached, isHeld, revokeReason } = record;
    if (isDetached) this.tombstones.addIfRoom(claim.id, "released", this.#now + this.#toTtlMs(claim.ttlMs));
    this.#observer.onEvent(isHeld ? "released" : "withdrawn", record, this.#now);
    this.#removeAndAdmit(record);
    return revokeReason === null;
  }

  /** Removes the claim of a client that has disconnected; its tombstone says "expired" for rememberMs. */
  expireNow(id: ClaimId, rememberMs: number, time: Timestamps): void {
    this.advance(time);
    const record = this.records.get(id);
    if (record === undefined) return;
    this.tombstones.addIfRoom(id, "expired", this.#now + rememberMs);
    this.#observer.onEvent("disconnected", record, this.#now);
    this.#removeAndAdmit(record);
  }

  /**
   * Removes waiting claims that must not be granted any more, as of the last advance(). All of them together: the removal of one
   * would admit another.
   */
  removeWaiters(records: readonly ClaimRecord<Owner>[]): void {
    for (const record of records) {
      this.tombstones.addIfRoom(record.claim.id, "revoked", this.#now + this.#toTtlMs(record.claim.ttlMs));
      this.#observer.onEvent("removed", record, this.#now);
      this.#notify(record, { state: "none", reason: "revoked" });
      this.#removeRecord(record);
    }
    for (const record of records) this.#admitWaiters(record);
  }

  /** Takes a held claim out of its session: it has a plain lease from now on, the full ttl or `remainingMs` if that is less. */
  detach(id: ClaimId, time: Timestamps, remainingMs: number = Number.POSITIVE_INFINITY): boolean {
    this.advance(time);
    const record = this.records.get(id);
    if (record === undefined || !record.isHeld || record.revokeReason !== null || record.claim.ttlMs === "session")
      return false;
    record.isDetached = true;
    record.owner = null;
    this.#leaseExpiry.extend(record, this.#now);
    if (this.#leaseExpiry.shorten(record, this.#now + remainingMs))
      for (const { queue } of record.entries) this.#recheckFrontWaiter(queue);
    return true;
  }

  /** See Driver.revoke. */
  revoke(key: string, token: number, isRemoval: boolean, time: Timestamps): boolean {
    this.advance(time);
    const record = this.findHolder(key, token);
    if (record === null || (record.revokeReason !== null && !isRemoval)) return false;
    this.#revoke(record, "revoked", isRemoval);
    return true;
  }

  /** The claim that holds the key with this token; null: none does. */
  findHolder(key: string, token: number): ClaimRecord<Owner> | null {
    return this.queues.get(key)?.findHolder(token) ?? null;
  }

  /** Revokes a claim that was held longer than maxHold, with that reason. */
  revokeForMaxHold(record: ClaimRecord<Owner>, time: Timestamps): void {
    this.advance(time);
    if (this.records.get(record.claim.id) === record && record.revokeReason === null)
      this.#revoke(record, "maxHold", false);
  }

  #revoke(record: ClaimRecord<Owner>, reason: "revoked" | "maxHold", isRemoval: boolean): void {
    this.tombstones.addIfRoom(record.claim.id, reason, this.#now + this.#toTtlMs(record.claim.ttlMs));
    record.revokeReason = reason;
    for (const { queue } of record.entries) queue.markRevoked(record);
    this.#observer.onEvent(
      isRemoval ? "removed" : reason === "revoked" ? reason : "maxHoldExceeded",
      record,
      this.#now,
    );
    // push it now: otherwise the client would notice only at its next renewal
    this.#notify(record, { state: "none", reason });
    if (isRemoval) this.#removeAndAdmit(record);
  }

  /** Advances the time and removes expired claims. Every method does so first; an owner with a timer calls it at nextDueAt(). */
  advance({ now, micros }: Timestamps): void {
    this.#now = now;
    if (this.tokenIssuer.advance(micros) && this.hasIdleQueues) this.#forgetIdleQueues();
    this.tombstones.removeExpired(now);
    const expired: ClaimRecord<Owner>[] = [];
    for (
      let record = this.#leaseExpiry.takeExpired(now);
      record !== null;
      record = this.#leaseExpiry.takeExpired(now)
    ) {
      this.tombstones.addIfRoom(
        record.claim.id,
        record.revokeReason ?? "expired",
        now + this.#toTtlMs(record.claim.ttlMs),
      );
      this.#observer.onEvent("expired", record, now);
      this.#removeRecord(record);
      expired.push(record);
    }
    for (const record of expired) this.#admitWaiters(record);
  }

  /** When advance() has work to do, or null. May be early: extending a lease does not move it. */
  nextDueAt(): number | null {
    return this.#leaseExpiry.nextDueAt();
  }

  /** Returns and clears the notifications since the last call: grants of waiting claims, revoked and recalled claims. */
  drainNotifications(): readonly Notification<Owner>[] {
    if (this.#notifications.length === 0) return this.#notifications;
    const notifications = this.#notifications;
    this.#notifications = [];
    return notifications;
  }

  /** Its owner cannot be reached: takes its waiting entry out of the queue until resumeWaiter(), so that grants pass it by. */
  suspendWaiter(id: ClaimId): void {
    const record = this.records.get(id);
    const entry = record?.entries.at(-1);
    if (record === undefined || entry === undefined || entry.isAdmitted || record.isSuspended) return;
    record.isSuspended = true;
    entry.queue.remove(entry);
    this.#admitFrom(entry.queue);
  }

  /** Its owner is back: puts its entry at the position of its arrival, behind claims that were granted meanwhile. */
  resumeWaiter(id: ClaimId): void {
    const record = this.records.get(id);
    if (record === undefined || !record.isSuspended) return;
    record.isSuspended = false;
    const { queue, permits, limit, arrival } = record.entries.at(-1) as QueueEntry<Owner>;
    const entry = new QueueEntry(this.getOrCreateQueue(queue.key), record, permits, limit, arrival);
    record.entries = record.entries.with(-1, entry);
    entry.queue.enqueue(entry);
    this.#admitFrom(entry.queue);
    this.#recallIfFirst(entry);
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

  /** The ceiling that the claims need that are admitted in all queues but have no tokens yet; 0: there are none. */
  get requiredTokenCeiling(): number {
    let ceiling = 0;
    for (const { claim } of this.#awaitingCeiling)
      ceiling = Math.max(ceiling, this.nextToken(claim) + claim.tokenCount);
    return ceiling;
  }

  /** Admits no claim until resumeGrants(). */
  pauseGrants(): void {
    this.#isPaused = true;
  }

  resumeGrants(): void {
    this.#isPaused = false;
    this.raiseTokenCeiling(this.tokenIssuer.ceiling);
    for (const queue of this.queues.values()) this.#admitFrom(queue);
  }

  /** The first token that may be granted to this claim now. */
  nextToken(claim: Claim): number {
    return this.tokenIssuer.next(claim.floor, this.#findLastToken(claim));
  }

  /** Does the floor rule accept this floor of a claim, or this token of a claim that is to be restored? */
  acceptsFloor(claim: Claim, floor: bigint, micros: number): boolean {
    return this.tokenIssuer.acceptsFloor(this.#findLastToken(claim), floor, micros);
  }

  /** The highest token that was granted on these keys; 0: none is known. */
  #findLastToken({ locks }: Claim): number {
    let lastToken = 0;
    for (const { key } of locks) lastToken = Math.max(lastToken, this.queues.get(key)?.lastToken ?? 0);
    return lastToken;
  }

  /** Are empty queues still kept for their last token? */
  get hasIdleQueues(): boolean {
    return this.#idleQueues.nextDueAt() !== null;
  }

  /** Returns the queue of a key; creates it if necessary. */
  getOrCreateQueue(key: string): KeyQueue<Owner> {
    let queue = this.queues.get(key);
    if (queue === undefined) {
      queue = new KeyQueue<Owner>(key);
      this.queues.add(key, queue);
    }
    return queue;
  }

  /**
   * Restores a claim that its client reports after a restart, or that was stored, while the table is paused. Of held claims that
   * conflict, those with lower tokens are removed. False if this claim was removed.
   */
  reclaim(claim: Claim, origin: Origin<Owner>, { token, tokenCount, remainingMs }: SavedLease): boolean {
    if (this.records.has(claim.id)) return true;
    const record = this.#insert(claim, origin, claim.ttlMs === "session" ? "session" : remainingMs);
    if (token === 0) this.#enterQueues(record);
    else this.#restoreHeld(record, token, tokenCount);
    for (const { queue } of record.entries) {
      for (let conflict = queue.findConflict(); conflict !== null; conflict = queue.findConflict())
        this.#expireConflict(conflict.record);
    }
    return this.records.has(claim.id);
  }

  #insert(claim: Claim, { owner, account = "", arrival = 0 }: Origin<Owner>, ttlMs = claim.ttlMs): ClaimRecord<Owner> {
    const expiresAt = ttlMs === "session" ? Number.POSITIVE_INFINITY : this.#now + ttlMs;
    const record = new ClaimRecord(claim, owner, this.#now, expiresAt, this.#nextArrival(arrival));
    record.account = account;
    this.records.add(claim.id, record);
    this.#leaseExpiry.add(record);
    this.#onAdded(record);
    return record;
  }

  /** Removes a claim that conflicts with a higher token. Notifies its client now; a renewal is answered "none", too. */
  #expireConflict(record: ClaimRecord<Owner>): void {
    this.#notify(record, { state: "none", reason: "expired" });
    this.tombstones.add(record.claim.id, "expired", this.#now + this.#toTtlMs(record.claim.ttlMs));
    this.#observer.onEvent("expired", record, this.#now);
    this.#removeAndAdmit(record);
  }

  /** What it waits for may end sooner than its last answer says. */
  #recheckFrontWaiter(queue: KeyQueue<Owner>): void {
    const entry = queue.lastAdmitted?.next ?? null;
    if (entry !== null) this.#notify(entry.record, "recheck");
  }

  #notify(
    record: ClaimRecord<Owner>,
    answer: Answer | "recalled" | "recheck" = toAnswer(record, this.#now, this.sessionMs),
  ): void {
    this.#notifications.push({ id: record.claim.id, owner: record.owner, answer });
  }

  #notifyGranted(record: ClaimRecord<Owner>): void {
    const successors = nameSuccessors(record, this.tokenIssuer);
    const answer = toAnswer(record, this.#now, this.sessionMs);
    this.#notify(record, answer.state === "held" && successors.length > 0 ? { ...answer, successors } : answer);
  }

  #recallHolders(queue: KeyQueue<Owner>): void {
    for (const record of recallableHolders(queue)) this.#notify(record, "recalled");
  }

  /** Called when the entry has begun to wait. */
  #recallIfFirst(entry: QueueEntry<Owner>): void {
    if (isFrontWaiter(entry) && entry === entry.queue.entries.last) this.#recallHolders(entry.queue);
  }

  #removeAndAdmit(record: ClaimRecord<Owner>): void {
    this.#removeRecord(record);
    this.#admitWaiters(record);
  }

  /** Removes a claim; #admitWaiters() must follow. */
  #removeRecord(record: ClaimRecord<Owner>): void {
    this.records.delete(record.claim.id);
    if (record.isHeld) this.#heldCount--;
    this.#leaseExpiry.remove(record);
    this.#awaitingCeiling.delete(record);
    for (const entry of record.entries) {
      if (entry.isAdmitted || !record.isSuspended) entry.queue.remove(entry); // a suspended entry is not in its queue
    }
    this.#onRemoved(record);
  }

  #extendLease(record: ClaimRecord<Owner>, owner: Owner | null): void {
    if (record.revokeReason !== null) return;
    if (!record.isDetached) record.owner = owner;
    this.#leaseExpiry.extend(record, this.#now);
    if (record.isHeld || record.isSuspended) return;
    const entry = record.entries.at(-1) as QueueEntry<Owner>;
    if (isFrontWaiter(entry)) this.#recallHolders(entry.queue);
  }

  #toTtlMs(ttlMs: number | "session"): number {
    return ttlMs === "session" ? this.sessionMs : ttlMs;
  }

  /** Returns the next arrival number, or the given one of a claim that arrived before a restart (0: none). */
  #nextArrival(arrival: number): number {
    this.#lastArrival = Math.max(this.#lastArrival + 1, this.tokenIssuer.clock, arrival);
    return arrival || this.#lastArrival;
  }

  /** Enters the claim's next queues, one after another, as far as it is admitted; grants it when it is admitted in all. */
  #enterQueues(record: ClaimRecord<Owner>): void {
    const { locks } = record.claim;
    while (record.entries.length < locks.length) {
      const isFirst = record.entries.length === 0;
      const { key, permits, limit } = locks[record.entries.length] as (typeof locks)[number];
      const queue = this.getOrCreateQueue(key);
      const entry = new QueueEntry(queue, record, permits, limit, isFirst ? record.arrival : ++this.#lastArrival);
      record.addEntry(entry);
      queue.enqueue(entry);
      // admit only this entry: others are admitted by the caller that freed the permits (#admitFrom)
      if (this.#isPaused || !queue.tryAdmit(entry)) return this.#recallIfFirst(entry);
    }
    this.#grant(record);
  }

  /** Adds a claim to all its queues as held, with these tokens, without the admission rule. */
  #restoreHeld(record: ClaimRecord<Owner>, token: number, tokenCount: number): void {
    record.token = token;
    record.tokenCount = tokenCount;
    record.heldAt = this.#now;
    for (const { key, permits, limit } of record.claim.locks) {
      const queue = this.getOrCreateQueue(key);
      queue.lastToken = Math.max(queue.lastToken, token + tokenCount - 1);
      const entry = new QueueEntry(queue, record, permits, limit, record.arrival);
      record.addEntry(entry);
      queue.insertAdmitted(entry);
      queue.addHolder(record);
    }
    this.#heldCount++;
    this.#observer.onEvent("reclaimed", record, this.#now);
  }

  #grant(record: ClaimRecord<Owner>): void {
    const token = this.tokenIssuer.issue(record);
    if (token === null) {
      this.#awaitingCeiling.add(record);
      return;
    }
    record.token = token;
    record.tokenCount = record.claim.tokenCount;
    record.heldAt = this.#now;
    for (const { queue } of record.entries) queue.addHolder(record);
    this.#heldCount++;
    this.#observer.onEvent("granted", record, this.#now);
  }

  /** Admits waiting claims in the queues that a claim has left. */
  #admitWaiters(record: ClaimRecord<Owner>): void {
    for (const { queue } of record.entries) this.#admitFrom(queue);
  }

  /** Admits the next claims of this queue, and advances each to its next queues. */
  #admitFrom(queue: KeyQueue<Owner>): void {
    for (let entry = this.#isPaused ? null : queue.admitNext(); entry !== null; entry = queue.admitNext()) {
      this.#enterQueues(entry.record);
      if (entry.record.isHeld) this.#notifyGranted(entry.record);
    }
    this.#forgetQueue(queue);
  }

  /** Deletes an empty queue, now or as soon as the clock of the tokens has passed its last token. */
  #forgetQueue(queue: KeyQueue<Owner>): void {
    if (queue.entries.size > 0 || queue.isRemoved) return;
    if (queue.lastToken < this.tokenIssuer.clock) {
      queue.isRemoved = true;
      this.#idleQueues.remove(queue);
      this.queues.delete(queue.key);
    } else this.#idleQueues.set(queue, queue.lastToken);
  }

  /** Deletes the empty queues whose last token the clock has passed. */
  #forgetIdleQueues(): void {
    const until = this.tokenIssuer.clock - 1;
    for (let queue = this.#idleQueues.takeDue(until); queue !== null; queue = this.#idleQueues.takeDue(until))
      this.#forgetQueue(queue);
  }
}

/** The answer for this claim now. `sessionMs`: the lease that the answers for "session" claims have. */
export function toAnswer(record: ClaimRecord, now: number, sessionMs: number): Answer {
  const { ttlMs: requestedTtl } = record.claim;
  // a list is made in steps, so it may contain a claim that has expired since the table was last advanced
  const remainingMs = requestedTtl === "session" ? sessionMs : Math.max(record.expiresAt - now, 0);
  if (record.isHeld) {
    const answer = { state: "held", token: BigInt(record.token), tokenCount: record.tokenCount, remainingMs } as const;
    return isRecalled(record) ? { ...answer, recalled: true } : answer;
  }
  return {
    state: "waiting",
    remainingMs,
    recheckMs: computeRecheckMs(record, now, requestedTtl === "session" ? sessionMs : requestedTtl),
  };
}

/**
 * The time until a claim ahead may expire: the earliest of those at the front of the queue, at most a ttl from now. Sooner
 * for the first waiter behind a claim that can be recalled.
 */
function computeRecheckMs(record: ClaimRecord, now: number, ttlMs: number): number {
  const latest = now + Math.min(ttlMs, recallRecheckMs(record, record.entries.at(-1) as QueueEntry, now));
  return Math.max(Math.min(latest, findEndAhead(record)) - now, 1);
}
