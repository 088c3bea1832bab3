/** Whose the claims of the keeper's table are, how many each may have, and for how long each may be held. */

import type { ClaimRecord } from "../../lock-table/claim-record.ts";
import type { Observer } from "../../lock-table/events.ts";
import type { LockTable } from "../../lock-table/table.ts";
import type { Claim, ClaimId } from "../../spi/driver.ts";
import { ANONYMOUS } from "../auth/access-control.ts";
import type { EndScope } from "../backend.ts";
import type { ClaimLimits, ServerLimits } from "../config/limits.ts";
import { assignOwner, clearOwner, Session } from "../session/session.ts";
import { MAX_UNJOURNALED_MS } from "../storage/write-ahead.ts";
import type { Timestamps } from "./batch-clock.ts";
import { ClaimQuotas } from "./claim-quotas.ts";
import { HoldDeadlines } from "./hold-deadlines.ts";

export class ClaimOwnership {
  readonly #quotas: ClaimQuotas;
  readonly #holdDeadlines = new HoldDeadlines();
  /** Who has a claim that another client took up, or gives back, by its reference. */
  readonly #previousOwners = new Map<ClaimId, Session>();
  /** Who had it before any other took it up. */
  readonly #creators = new Map<ClaimId, Session>();

  /** next: told of all that the table tells. */
  constructor(limits: ServerLimits, nextObserver: Observer | null, formerLimits?: ClaimLimits) {
    this.#quotas = new ClaimQuotas(limits, nextObserver, formerLimits);
  }

  /** What the table must tell of what happens in it. */
  get observer(): Observer {
    return this.#quotas;
  }

  /** @throws RequestError if there is no room for this claim, unless it is there already */
  checkQuotas(table: LockTable, session: Session, claim: Claim): void {
    this.#quotas.check(table, session, claim);
  }

  /** Is there room for a claim that the session tells of after a restart? */
  hasRoomToReclaim(table: LockTable, session: Session, claim: Claim, isHeld: boolean): boolean {
    return this.#quotas.exceededOnReclaim(table, session, claim, isHeld) === null;
  }

  /** Makes the claim the session's; one that nobody has had yet counts from now on. */
  assignOwner(record: ClaimRecord, session: Session): void {
    if (!record.notifyOnRemoval) this.#quotas.add(record.account, record.claim);
    const previousOwner = record.owner;
    assignOwner(record, session);
    if (previousOwner === record.owner || !(previousOwner instanceof Session)) return;
    this.#previousOwners.set(record.claim.id, previousOwner);
    if (!this.#creators.has(record.claim.id)) this.#creators.set(record.claim.id, previousOwner);
  }

  /** It was to leave the session and did not, if it is still there; the session may have ended meanwhile. */
  keepOwner(table: LockTable, record: ClaimRecord, session: Session, time: Timestamps): void {
    if (table.records.get(record.claim.id) !== record) return;
    this.assignOwner(record, session);
    if (session.isEnded) this.endClaims(table, session, "all", time);
  }

  /** It is given back, perhaps by another client than whose it is, who is to hear of that. */
  recordRelease({ owner, claim }: ClaimRecord, releasedBy: Session): void {
    if (owner !== releasedBy && owner instanceof Session) this.#previousOwners.set(claim.id, owner);
  }

  /** If it is held: for as long as its holder's rules allow, from the first time that this is said. */
  startHoldDeadline(record: ClaimRecord, { principal }: Session, now: number): void {
    if (principal !== ANONYMOUS && record.isHeld) this.#holdDeadlines.start(record, principal, now);
  }

  /** It has come back from disk, with what it still may be held if that is bounded. */
  restore(record: ClaimRecord, owner: Session | null, holdLeftMs: number | undefined, now: number): void {
    this.#quotas.add(record.account, record.claim);
    if (holdLeftMs !== undefined) this.#holdDeadlines.set(record, now + holdLeftMs);
    record.notifyOnRemoval = true;
    if (owner !== null) assignOwner(record, owner);
  }

  /** Ends claims of a session whose client has gone; not what it only took up and whose maker goes on. */
  endClaims(table: LockTable, session: Session, scope: EndScope, { now, micros }: Timestamps): void {
    for (const record of [...session.records]) {
      const { claim, isHeld } = record;
      if (scope === "waiting" ? isHeld : scope === "session" && claim.ttlMs !== "session") continue;
      const creator = this.#creators.get(claim.id) ?? session;
      if (creator !== session && !creator.isEnded) assignOwner(record, creator);
      else table.expireNow(claim.id, MAX_UNJOURNALED_MS, now, micros);
    }
  }

  onRemoved(record: ClaimRecord): void {
    clearOwner(record);
    this.#notifyPreviousOwner(record.claim.id);
    this.#quotas.remove(record.account, record.claim);
    this.#holdDeadlines.remove(record);
  }

  /** It may work on what somebody else has just given back by its reference: it asks, and is told. */
  #notifyPreviousOwner(id: ClaimId): void {
    const previousOwner = this.#previousOwners.get(id);
    if (previousOwner === undefined) return; // then it has no maker either
    previousOwner.sink?.pushRecheck(id);
    this.#previousOwners.delete(id);
    this.#creators.delete(id);
  }

  /** When advance() has work. */
  nextDueAt(): number {
    return this.#holdDeadlines.nextDueAt();
  }

  /** Revokes what has been held for too long. */
  advance(table: LockTable, { now, micros }: Timestamps): void {
    this.#holdDeadlines.advance(table, now, micros);
  }
}
