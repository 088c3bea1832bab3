/**
 * Which session owns each claim of the local backend, and what the claim costs its account: the quotas count it from its
 * entry into the table to its end, and `maxHold` bounds its time.
 */

import type { ClaimRecord } from "../../lock-table/key-queue.ts";
import type { LockTable, Timestamps } from "../../lock-table/table.ts";
import type { Claim, ClaimId } from "../../spi/driver.ts";
import { ANONYMOUS } from "../auth/access-control.ts";
import type { ClaimLimits, ServerLimits } from "../limits.ts";
import type { EndScope } from "../session/backend.ts";
import type { Session } from "../session/session.ts";
import { linkToSession, unlinkFromSession } from "../session/session.ts";
import { MAX_UNJOURNALED_MS } from "../storage/write-ahead.ts";
import { ClaimQuotas } from "./claim-quotas.ts";
import { HoldDeadlines } from "./hold-deadlines.ts";

/** The earlier owners of a claim that another client attached to, or releases with its reference. */
interface FormerOwners {
  /** The first one. */
  readonly creator: Session;
  /** The last one before the present owner. */
  previous: Session;
}

export class ClaimOwnership {
  readonly holdDeadlines: HoldDeadlines = new HoldDeadlines();
  readonly #table: LockTable<Session>;
  readonly #quotas: ClaimQuotas;
  readonly #formerOwners = new Map<ClaimId, FormerOwners>();

  constructor(table: LockTable<Session>, limits: ServerLimits, formerLimits?: ClaimLimits) {
    this.#table = table;
    this.#quotas = new ClaimQuotas(limits, formerLimits);
  }

  /** @throws RequestError if the claim exceeds a quota and is new */
  checkQuotas(session: Session, claim: Claim): void {
    this.#quotas.check(this.#table, session, claim);
  }

  /** True if the quotas allow a claim that the session reclaims after a restart. */
  hasRoomToReclaim(session: Session, claim: Claim, isHeld: boolean): boolean {
    return this.#quotas.exceededOnReclaim(this.#table, session, claim, isHeld) === null;
  }

  /** The claim is in the table from now on. */
  onAdded({ account, claim }: ClaimRecord<Session>): void {
    this.#quotas.add(account, claim);
  }

  /** The claim has ended. */
  onRemoved(record: ClaimRecord<Session>): void {
    unlinkFromSession(record);
    this.#notifyPreviousOwner(record.claim.id);
    this.#quotas.remove(record.account, record.claim);
    this.holdDeadlines.remove(record);
  }

  /** The session is the owner of the claim from now on: it has placed it, or attached to it. */
  takeOwnership(record: ClaimRecord<Session>, session: Session): void {
    const previousOwner = record.owner;
    linkToSession(record, session);
    if (previousOwner !== null && previousOwner !== record.owner) this.#noteFormerOwner(record.claim.id, previousOwner);
  }

  /** The same after a write, in which the claim or the session may have ended. */
  takeOwnershipAfterWrite(record: ClaimRecord<Session>, session: Session, time: Timestamps): void {
    if (this.#table.records.get(record.claim.id) !== record) return;
    this.takeOwnership(record, session);
    if (session.isEnded) this.endClaims(session, "all", time);
  }

  /** The session has reclaimed the claim after a restart. */
  adoptReclaimed(record: ClaimRecord<Session>, session: Session, time: Timestamps): void {
    // the earlier hold time is unknown, so the deadline starts again
    this.startHoldDeadline(record, session, time.now);
    this.takeOwnershipAfterWrite(record, session, time);
  }

  /** To be called before a session releases the claim: an owner that did not do so itself is notified. */
  beforeRelease({ owner, claim }: ClaimRecord<Session>, releasedBy: Session): void {
    if (owner !== null && owner !== releasedBy) this.#noteFormerOwner(claim.id, owner);
  }

  /** Starts the deadline of `maxHold` for a held claim, the first time it is called for the claim. */
  startHoldDeadline(record: ClaimRecord<Session>, { principal }: Session, now: number): void {
    if (principal !== ANONYMOUS && record.isHeld) this.holdDeadlines.start(record, principal, now);
  }

  /**
   * Ends claims of a session whose client has disconnected. A claim that it only attached to returns to its creator, if
   * that still runs.
   */
  endClaims(session: Session, scope: EndScope, time: Timestamps): void {
    for (const record of [...session.records]) {
      const { claim, isHeld } = record;
      if (scope === "waiting" ? isHeld : scope === "session" && claim.ttlMs !== "session") continue;
      const creator = this.#formerOwners.get(claim.id)?.creator ?? session;
      if (creator !== session && !creator.isEnded) linkToSession(record, creator);
      else this.#table.expireNow(claim.id, MAX_UNJOURNALED_MS, time);
    }
  }

  #noteFormerOwner(id: ClaimId, owner: Session): void {
    const formerOwners = this.#formerOwners.get(id);
    if (formerOwners === undefined) this.#formerOwners.set(id, { creator: owner, previous: owner });
    else formerOwners.previous = owner;
  }

  /** It may still work under a lock that another client has ended: a recheck tells it. */
  #notifyPreviousOwner(id: ClaimId): void {
    const formerOwners = this.#formerOwners.get(id);
    if (formerOwners === undefined) return;
    formerOwners.previous.sink?.pushRecheck(id);
    this.#formerOwners.delete(id);
  }
}
