/**
 * The lock table: lines of claims by key, claims by id, leases, tokens, and grants to announce. Pure: every verb is
 * given `now` (monotonic milliseconds, for leases) and `micros` (wall clock in microseconds, for tokens only).
 *
 * Invariants
 * - A line is admitted seats, then waiting ones by arrival (lock-table/key-queue.ts). A claim enters a line only when it is
 *   admitted in the line of its previous key, so who takes keys in order never deadlocks.
 * - A claim is held from the moment it is admitted in its last line and has its tokens (lock-table/token-issuer.ts). A grant never
 *   lengthens the lease: the client counts from what it sent, and has sent nothing.
 * - What has run out goes before anybody is admitted, so nobody is granted to a claim that has ended.
 * - While paused (a restarted server reclaiming) nobody is admitted.
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
  /** What "session" claims are told as their lease, and how long their ids are remembered. Default 30 s. */
  readonly sessionMs?: number;
  /** Tokens stay below it; a grant that would reach it waits for raiseTokenCeiling(). Default: no bound. */
  readonly tokenCeiling?: number;
  /** How many claims are remembered that have ended: of anyone, for as long as they ask. Default: all. */
  readonly maxTombstones?: number;
  /** Told when a claim whose entry is marked `notifyOnRemoval` is gone, however it ended. */
  readonly onRemoved?: (record: ClaimRecord) => void;
  /** Told of every claim's life. Default: nobody is. */
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
   * Places the claim, or finds it and restarts its lease. `arrival`: where a claim that waited before a restart stood, else
   * 0; `by`: who places it.
   */
  claim(claim: Claim, owner: unknown, now: number, micros: number, arrival = 0, by = ""): Answer {
    const record = this.enqueue(claim, owner, now, micros, arrival, by);
    return record === null ? this.tombstones.noneAnswer(claim.id) : this.answerFor(record);
  }

  /** As claim(); gives what is there now by its id, or null. */
  enqueue(claim: Claim, owner: unknown, now: number, micros: number, arrival = 0, by = ""): ClaimRecord | null {
    this.advance(now, micros);
    const existing = this.records.get(claim.id);
    if (existing !== undefined) {
      this.#extendLease(existing, owner);
      return existing;
    }
    if (this.tombstones.reasonOf(claim.id) !== undefined) return null;
    if (!claim.wait && !this.canAdmitNow(claim)) return null;
    const record = this.#insert(claim, owner, arrival, by);
    this.#granter.advance(record);
    if (record.isHeld) return record;
    if (!claim.wait) {
      this.#removeAndAdmit(record); // free, but the token ceiling is in the way: no trace all the same
      return null;
    }
    this.#observer.onEvent("waiting", record, now);
    return record;
  }

  /** Would the claim be admitted everywhere if it came now? As of the time that the table was told last. */
  canAdmitNow(claim: Claim): boolean {
    return this.#granter.canAdmitNow(claim);
  }

  /** Is nothing held that keeps the claim from its keys? Those who only wait hold nothing. */
  fitsBesideHolders(claim: Claim): boolean {
    return this.#granter.fitsBesideHolders(claim);
  }

  /** What its client is told of an entry, at the time that the table was told last. */
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

  /** Says whether it was there and not revoked. `unanswered`: its ttl, if a `claim` call of this id may still be on its way. */
  release(id: ClaimId, now: number, micros: number, unanswered?: number | "session"): boolean {
    this.advance(now, micros);
    if (unanswered !== undefined) this.addTombstone(id, unanswered);
    const record = this.records.get(id);
    return record !== undefined && this.remove(record);
  }

  /** A `claim` call of this id, which is released, may still be on its way: no place is to be taken by it. */
  addTombstone(id: ClaimId, ttlMs: number | "session"): void {
    this.tombstones.add(id, "released", this.#now + this.#toTtlMs(ttlMs));
  }

  /** As release(), of what is there at the time that the table was told last. */
  remove(record: ClaimRecord): boolean {
    const { claim, isDetached, isHeld, revokeReason } = record;
    if (isDetached) this.tombstones.addIfRoom(claim.id, "released", this.#now + this.#toTtlMs(claim.ttlMs));
    this.#observer.onEvent(isHeld ? "released" : "left", record, this.#now);
    this.#removeAndAdmit(record);
    return revokeReason === null;
  }

  /** Its client has gone: removes it, and remembers for so long that it has expired. */
  expireNow(id: ClaimId, rememberMs: number, now: number, micros: number): void {
    this.advance(now, micros);
    const record = this.records.get(id);
    if (record === undefined) return;
    this.tombstones.addIfRoom(id, "expired", now + rememberMs);
    this.#observer.onEvent("gone", record, now);
    this.#removeAndAdmit(record);
  }

  /** Takes a held claim out of its session: a plain lease from now on, the full one or `leftMs` where that is less. */
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

  /** The claim has been held for longer than it may: revoked, for that reason. */
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
    // its client need not wait for its next renewal to hear of it
    this.#notifications.push({ id: record.claim.id, owner: record.owner, answer: { state: "none", reason } });
    if (isRemoval) this.#removeAndAdmit(record);
  }

  /** Lets time pass and ends what has run out. Every verb does so first; an owner with a timer calls it at nextDueAt(). */
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

  /** Takes what became of claims without their asking since the last call: grants, and what was revoked. */
  drainNotifications(): readonly Notification[] {
    if (this.#notifications.length === 0) return this.#notifications;
    const notifications = this.#notifications;
    this.#notifications = [];
    return notifications;
  }

  /** Its owner cannot be reached: its waiting place leaves the line until resumeWaiter(), so that grants pass over it. */
  suspendWaiter(id: ClaimId): void {
    const record = this.records.get(id);
    if (record !== undefined) this.#granter.suspendWaiter(record);
  }

  /** Its owner is back: its place stands where its arrival says, behind whoever was granted meanwhile. */
  resumeWaiter(id: ClaimId): void {
    const record = this.records.get(id);
    if (record !== undefined) this.#granter.resumeWaiter(record);
  }

  /** Tokens up to (not including) this may be granted from now on. */
  raiseTokenCeiling(ceiling: number): void {
    this.#granter.raiseTokenCeiling(ceiling);
  }

  /** The ceiling that those need who are admitted everywhere but have no tokens yet; 0: there are none. */
  get requiredTokenCeiling(): number {
    return this.#granter.requiredTokenCeiling;
  }

  /** Nobody is admitted until resumeGrants(). */
  pauseGrants(): void {
    this.#granter.pauseGrants();
  }

  resumeGrants(): void {
    this.#granter.resumeGrants();
  }

  /**
   * A hold that its client asserts after a restart, while the table is paused. It is held as asserted; where holds
   * cannot stand together, the lower tokens go. False if it went itself.
   */
  reclaim(claim: Claim, owner: unknown, token: number, tokens: number, leftMs: number, by = ""): boolean {
    if (this.records.has(claim.id)) return true;
    const record = this.#insert(claim, owner, 0, by, claim.ttlMs === "session" ? "session" : leftMs);
    this.#granter.restoreHeld(record, token, tokens);
    for (const { queue } of record.entries) {
      for (let conflict = queue.findConflict(); conflict !== null; conflict = queue.findConflict())
        this.#expireConflict(conflict.record);
    }
    return this.records.has(claim.id);
  }

  #insert(claim: Claim, owner: unknown, arrival: number, by: string, leftMs = claim.ttlMs): ClaimRecord {
    const expiresAt = leftMs === "session" ? Number.POSITIVE_INFINITY : this.#now + leftMs;
    const record = new ClaimRecord(claim, owner, this.#now, expiresAt, this.#granter.nextArrival(arrival));
    record.account = by;
    this.records.add(claim.id, record);
    this.#leaseExpiry.add(record);
    return record;
  }

  /** It cannot be held beside a higher token: its client is told at once, and at its next renewal if it is not reached. */
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
