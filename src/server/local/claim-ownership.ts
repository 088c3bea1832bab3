/** Tracks which session owns each claim of the local backend, and enforces the quotas and the longest hold times. */

import type { ClaimRecord } from "../../lock-table/key-queue.ts";
import type { LockTable, Timestamps } from "../../lock-table/table.ts";
import type { Claim, ClaimId } from "../../spi/driver.ts";
import { ANONYMOUS } from "../auth/access-control.ts";
import type { ClaimLimits, ServerLimits } from "../limits.ts";
import type { EndScope } from "../session/backend.ts";
import type { Session } from "../session/session.ts";
import { assignOwner, clearOwner } from "../session/session.ts";
import { MAX_UNJOURNALED_MS } from "../storage/write-ahead.ts";
import { ClaimQuotas } from "./claim-quotas.ts";
import { HoldDeadlines } from "./hold-deadlines.ts";

export class ClaimOwnership {
  readonly #quotas: ClaimQuotas;
  readonly #holdDeadlines = new HoldDeadlines();
  /** The last owner of a claim that another client attached to, or released with its reference. */
  readonly #previousOwners = new Map<ClaimId, Session>();
  /** The owner before the first attach. */
  readonly #creators = new Map<ClaimId, Session>();

  constructor(limits: ServerLimits, formerLimits?: ClaimLimits) {
    this.#quotas = new ClaimQuotas(limits, formerLimits);
  }

  /** @throws RequestError if the claim exceeds a quota and is new */
  checkQuotas(table: LockTable<Session>, session: Session, claim: Claim): void {
    this.#quotas.check(table, session, claim);
  }

  /** True if the quotas allow a claim that the session reclaims after a restart. */
  hasRoomToReclaim(table: LockTable<Session>, session: Session, claim: Claim, isHeld: boolean): boolean {
    return this.#quotas.exceededOnReclaim(table, session, claim, isHeld) === null;
  }

  /** Makes the session the owner of the claim. A claim without an owner so far is counted in the quotas. */
  assignOwner(record: ClaimRecord<Session>, session: Session): void {
    if (!record.notifyOnRemoval) this.#quotas.add(record.account, record.claim);
    const previousOwner = record.owner;
    assignOwner(record, session);
    if (previousOwner === record.owner || previousOwner === null) return;
    this.#previousOwners.set(record.claim.id, previousOwner);
    if (!this.#creators.has(record.claim.id)) this.#creators.set(record.claim.id, previousOwner);
  }

  /** Undoes a failed removal of the owner, if the claim still exists. The session may have ended meanwhile. */
  keepOwner(table: LockTable<Session>, record: ClaimRecord<Session>, session: Session, time: Timestamps): void {
    if (table.records.get(record.claim.id) !== record) return;
    this.assignOwner(record, session);
    if (session.isEnded) this.endClaims(table, session, "all", time);
  }

  /** Remembers the owner of a claim that another client releases, so that the owner is notified. */
  recordRelease({ owner, claim }: ClaimRecord<Session>, releasedBy: Session): void {
    if (owner !== null && owner !== releasedBy) this.#previousOwners.set(claim.id, owner);
  }

  /** Starts the deadline of `maxHold` for a held claim, the first time it is called for the claim. */
  startHoldDeadline(record: ClaimRecord<Session>, { principal }: Session, now: number): void {
    if (principal !== ANONYMOUS && record.isHeld) this.#holdDeadlines.start(record, principal, now);
  }

  /** Registers a claim loaded from disk, with the remaining time of its `maxHold` if it has one. */
  restore(record: ClaimRecord<Session>, owner: Session | null, holdLeftMs: number | undefined, now: number): void {
    this.#quotas.add(record.account, record.claim);
    if (holdLeftMs !== undefined) this.#holdDeadlines.set(record, holdLeftMs, now);
    record.notifyOnRemoval = true;
    if (owner !== null) assignOwner(record, owner);
  }

  /**
   * Ends claims of a session whose client has disconnected. A claim that it only attached to returns to its creator, if
   * that still runs.
   */
  endClaims(table: LockTable<Session>, session: Session, scope: EndScope, time: Timestamps): void {
    for (const record of [...session.records]) {
      const { claim, isHeld } = record;
      if (scope === "waiting" ? isHeld : scope === "session" && claim.ttlMs !== "session") continue;
      const creator = this.#creators.get(claim.id) ?? session;
      if (creator !== session && !creator.isEnded) assignOwner(record, creator);
      else table.expireNow(claim.id, MAX_UNJOURNALED_MS, time);
    }
  }

  onRemoved(record: ClaimRecord<Session>): void {
    clearOwner(record);
    this.#notifyPreviousOwner(record.claim.id);
    this.#quotas.remove(record.account, record.claim);
    this.#holdDeadlines.remove(record);
  }

  /**
   * The previous owner may still work under a lock that another client released with its reference: a recheck tells it.
   */
  #notifyPreviousOwner(id: ClaimId): void {
    const previousOwner = this.#previousOwners.get(id);
    if (previousOwner === undefined) return; // then it has no maker either
    previousOwner.sink?.pushRecheck(id);
    this.#previousOwners.delete(id);
    this.#creators.delete(id);
  }

  /** When advance() has work to do. */
  nextDueAt(): number {
    return this.#holdDeadlines.nextDueAt();
  }

  /** Revokes claims that have been held for too long. */
  advance(table: LockTable<Session>, time: Timestamps): void {
    this.#holdDeadlines.advance(table, time);
  }
}
