/**
 * The lock table: queues of claims by key, claims by id, leases, tokens, and notifications to push. Pure: every method gets
 * `now` (monotonic milliseconds, for leases) and `micros` (wall clock in microseconds, for tokens only).
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
import { SlotMap } from "../util/slot-map.ts";
import type { Notification } from "./answer.ts";
import { toAnswer } from "./answer.ts";
import { ClaimRecord } from "./claim-record.ts";
import type { Observer } from "./events.ts";
import { NO_OBSERVER } from "./events.ts";
import { Granter } from "./granter.ts";
import { LeaseExpiry } from "./lease-expiry.ts";
import type { TokenIssuer } from "./token-issuer.ts";
import { Tombstones } from "./tombstones.ts";

export interface LockTableOptions {
  /** The lease in the answers for "session" claims, and the lifetime of their tombstones. Default 30 s. */
  readonly sessionMs?: number;
  /** All tokens are below it; a grant that would reach it waits for raiseTokenCeiling(). Default: no ceiling. */
  readonly tokenCeiling?: number;
  /** The most tombstones, of all clients together. Default: no limit. */
  readonly maxTombstones?: number;
  /** Called when a claim with `notifyOnRemoval` is removed, however it ended. */
  readonly onRemoved?: (record: ClaimRecord) => void;
  /** Receives the events of all claims. Default: none. */
  readonly observer?: Observer;
}

export class LockTable {
  readonly sessionMs: number;
  readonly records: SlotMap<ClaimId, ClaimRecord> = new SlotMap();
  readonly tombstones: Tombstones;
  readonly tokenIssuer: TokenIssuer;
  readonly #leaseExpiry = new LeaseExpiry();
  readonly #granter: Granter;
  readonly #onRemoved: (record: ClaimRecord) => void;
  readonly #observer: Observer;
  #notifications: Notification[] = [];
  #now = 0;

  constructor(options: LockTableOptions = {}) {
    this.sessionMs = options.sessionMs ?? 30_000;
    this.tombstones = new Tombstones(options.maxTombstones);
    this.#onRemoved = options.onRemoved ?? (() => undefined);
    this.#observer = options.observer ?? NO_OBSERVER;
    const notify = (record: ClaimRecord): void => this.#notify(record);
    this.#granter = new Granter(options.tokenCeiling ?? Number.POSITIVE_INFINITY, this.#observer, notify);
    this.tokenIssuer = this.#granter.tokenIssuer;
  }

  /**
   * Queues the claim, or finds it and restarts its lease. `arrival`: that of a claim that waited before a restart, else 0;
   * `account`: the account that places it.
   */
  claim(claim: Claim, owner: unknown, now: number, micros: number, arrival = 0, account = ""): Answer {
    const record = this.enqueue(claim, owner, now, micros, arrival, account);
    return record === null ? this.tombstones.noneAnswer(claim.id) : this.answerFor(record);
  }

  /** Like claim(), but returns the record of the claim, or null if it was not kept. */
  enqueue(claim: Claim, owner: unknown, now: number, micros: number, arrival = 0, account = ""): ClaimRecord | null {
    this.advance(now, micros);
    const existing = this.records.get(claim.id);
    if (existing !== undefined) {
      this.#extendLease(existing, owner);
      return existing;
    }
    if (this.tombstones.reasonOf(claim.id) !== undefined) return null;
    if (!claim.wait && !this.canAdmitNow(claim)) return null;
    const record = this.#insert(claim, owner, arrival, account);
    this.#granter.advance(record);
    if (record.isHeld) return record;
    if (!claim.wait) {
      this.#removeAndAdmit(record); // free, but the token ceiling blocks it; `wait: false` must leave no trace
      return null;
    }
    this.#observer.onEvent("waiting", record, now);
    return record;
  }

  /** Would the claim be admitted in all its queues if it arrived now? As of the last advance(). */
  canAdmitNow(claim: Claim): boolean {
    return this.#granter.canAdmitNow(claim);
  }

  /** Would the claim fit beside the holders of its keys, regardless of waiters? */
  fitsBesideHolders(claim: Claim): boolean {
    return this.#granter.fitsBesideHolders(claim);
  }

  /** The answer for a claim, as of the last advance(). */
  answerFor(record: ClaimRecord): Answer {
    if (record.revokeReason !== null) return { state: "none", reason: record.revokeReason };
    return toAnswer(record, this.#now, this.sessionMs);
  }

  renew(id: ClaimId, owner: unknown, now: number, micros: number): Answer {
    this.advance(now, micros);
    const record = this.records.get(id);
    if (record === undefined) return this.tombstones.noneAnswer(id);
    this.#extendLease(record, owner);
    return this.answerFor(record);
  }

  /** Returns whether the claim existed and was not revoked. `unanswered`: its ttl, if a `claim` call may still be in flight. */
  release(id: ClaimId, now: number, micros: number, unanswered?: number | "session"): boolean {
    this.advance(now, micros);
    if (unanswered !== undefined) this.addTombstone(id, unanswered);
    const record = this.records.get(id);
    return record !== undefined && this.remove(record);
  }

  /** Adds a tombstone for a released claim: a late `claim` call with this id must not enter the queue. */
  addTombstone(id: ClaimId, ttlMs: number | "session"): void {
    this.tombstones.add(id, "released", this.#now + this.#toTtlMs(ttlMs));
  }

  /** Like release(), for a record, as of the last advance(). */
  remove(record: ClaimRecord): boolean {
    const { claim, isDetached, isHeld, revokeReason } = record;
    if (isDetached) this.tombstones.addIfRoom(claim.id, "released", this.#now + this.#toTtlMs(claim.ttlMs));
    this.#observer.onEvent(isHeld ? "released" : "left", record, this.#now);
    this.#removeAndAdmit(record);
    return revokeReason === null;
  }

  /** Removes the claim of a client that has disconnected; its tombstone says "expired" for rememberMs. */
  expireNow(id: ClaimId, rememberMs: number, now: number, micros: number): void {
    this.advance(now, micros);
    const record = this.records.get(id);
    if (record === undefined) return;
    this.tombstones.addIfRoom(id, "expired", now + rememberMs);
    this.#observer.onEvent("gone", record, now);
    this.#removeAndAdmit(record);
  }

  /** Takes a held claim out of its session: it has a plain lease from now on, the full ttl or `leftMs` if that is less. */
  detach(id: ClaimId, now: number, micros: number, leftMs: number = Number.POSITIVE_INFINITY): boolean {
    this.advance(now, micros);
    const record = this.records.get(id);
    if (record === undefined || !record.isHeld || record.revokeReason !== null || record.claim.ttlMs === "session")
      return false;
    record.isDetached = true;
    record.owner = null;
    this.#leaseExpiry.extend(record, this.#now);
    this.#leaseExpiry.shorten(record, this.#now + leftMs);
    return true;
  }

  /** See Driver.revoke. */
  revoke(key: string, token: number, isRemoval: boolean, now: number, micros: number): boolean {
    this.advance(now, micros);
    const record = this.tokenIssuer.queues.get(key)?.findHolder(token) ?? null;
    if (record === null || (record.revokeReason !== null && !isRemoval)) return false;
    this.#revoke(record, "revoked", isRemoval);
    return true;
  }

  /** Revokes a claim that was held longer than maxHold, with that reason. */
  revokeForMaxHold(record: ClaimRecord, now: number, micros: number): void {
    this.advance(now, micros);
    if (this.records.get(record.claim.id) === record && record.revokeReason === null)
      this.#revoke(record, "maxHold", false);
  }

  #revoke(record: ClaimRecord, reason: "revoked" | "maxHold", isRemoval: boolean): void {
    this.tombstones.addIfRoom(record.claim.id, reason, this.#now + this.#toTtlMs(record.claim.ttlMs));
    record.revokeReason = reason;
    for (const { queue } of record.entries) queue.markRevoked(record);
    this.#observer.onEvent(isRemoval ? "removed" : reason === "revoked" ? reason : "outstayed", record, this.#now);
    // push it now: otherwise the client would notice only at its next renewal
    this.#notifications.push({ id: record.claim.id, owner: record.owner, answer: { state: "none", reason } });
    if (isRemoval) this.#removeAndAdmit(record);
  }

  /** Advances the time and removes expired claims. Every method does so first; an owner with a timer calls it at nextDueAt(). */
  advance(now: number, micros: number): void {
    this.#now = now;
    this.#granter.advanceClock(now, micros);
    this.tombstones.removeExpired(now);
    const expired: ClaimRecord[] = [];
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
    for (const record of expired) this.#granter.admitNext(record);
  }

  /** When advance() has work to do, or null. May be early: extending a lease does not move it. */
  nextDueAt(): number | null {
    return this.#leaseExpiry.nextDueAt();
  }

  /** Returns and clears the notifications since the last call: grants of waiting claims, and revoked claims. */
  drainNotifications(): readonly Notification[] {
    if (this.#notifications.length === 0) return this.#notifications;
    const notifications = this.#notifications;
    this.#notifications = [];
    return notifications;
  }

  /** Its owner cannot be reached: takes its waiting entry out of the queue until resumeWaiter(), so that grants pass it by. */
  suspendWaiter(id: ClaimId): void {
    const record = this.records.get(id);
    if (record !== undefined) this.#granter.suspendWaiter(record);
  }

  /** Its owner is back: puts its entry at the position of its arrival, behind claims that were granted meanwhile. */
  resumeWaiter(id: ClaimId): void {
    const record = this.records.get(id);
    if (record !== undefined) this.#granter.resumeWaiter(record);
  }

  /** Tokens up to (not including) this may be granted from now on. */
  raiseTokenCeiling(ceiling: number): void {
    this.#granter.raiseTokenCeiling(ceiling);
  }

  /** The ceiling that the claims need that are admitted in all queues but have no tokens yet; 0: there are none. */
  get requiredTokenCeiling(): number {
    return this.#granter.requiredTokenCeiling;
  }

  /** Admits no claim until resumeGrants(). */
  pauseGrants(): void {
    this.#granter.pauseGrants();
  }

  resumeGrants(): void {
    this.#granter.resumeGrants();
  }

  /**
   * Restores a held claim that its client reports after a restart, while the table is paused. Of claims that conflict, those
   * with lower tokens are removed. False if this claim was removed.
   */
  reclaim(claim: Claim, owner: unknown, token: number, tokens: number, leftMs: number, account = ""): boolean {
    if (this.records.has(claim.id)) return true;
    const record = this.#insert(claim, owner, 0, account, claim.ttlMs === "session" ? "session" : leftMs);
    this.#granter.restoreHeld(record, token, tokens);
    for (const { queue } of record.entries) {
      for (let conflict = queue.findConflict(); conflict !== null; conflict = queue.findConflict())
        this.#expireConflict(conflict.record);
    }
    return this.records.has(claim.id);
  }

  #insert(claim: Claim, owner: unknown, arrival: number, account: string, leftMs = claim.ttlMs): ClaimRecord {
    const expiresAt = leftMs === "session" ? Number.POSITIVE_INFINITY : this.#now + leftMs;
    const record = new ClaimRecord(claim, owner, this.#now, expiresAt, this.#granter.nextArrival(arrival));
    record.account = account;
    this.records.add(claim.id, record);
    this.#leaseExpiry.add(record);
    return record;
  }

  /** Removes a claim that conflicts with a higher token. Notifies its client now; a renewal is answered "none", too. */
  #expireConflict(record: ClaimRecord): void {
    this.#notifications.push({
      id: record.claim.id,
      owner: record.owner,
      answer: { state: "none", reason: "expired" },
    });
    this.tombstones.add(record.claim.id, "expired", this.#now + this.#toTtlMs(record.claim.ttlMs));
    this.#observer.onEvent("expired", record, this.#now);
    this.#removeAndAdmit(record);
  }

  #notify(record: ClaimRecord): void {
    this.#notifications.push({
      id: record.claim.id,
      owner: record.owner,
      answer: toAnswer(record, this.#now, this.sessionMs),
    });
  }

  #removeAndAdmit(record: ClaimRecord): void {
    this.#removeRecord(record);
    this.#granter.admitNext(record);
  }

  #removeRecord(record: ClaimRecord): void {
    this.records.delete(record.claim.id);
    this.#leaseExpiry.remove(record);
    this.#granter.leaveQueues(record);
    if (record.notifyOnRemoval) this.#onRemoved(record);
  }

  #extendLease(record: ClaimRecord, owner: unknown): void {
    if (record.revokeReason !== null) return;
    if (!record.isDetached) record.owner = owner;
    this.#leaseExpiry.extend(record, this.#now);
  }

  #toTtlMs(ttlMs: number | "session"): number {
    return ttlMs === "session" ? this.sessionMs : ttlMs;
  }
}
