/** Which session owns each claim of the local backend. */

import type { ClaimRecord } from "../../lock-table/key-queue.ts";
import type { LockTable, Timestamps } from "../../lock-table/table.ts";
import type { Claim, ClaimId } from "../../spi/driver.ts";
import type { EndScope } from "../session/backend.ts";
import type { Session } from "../session/session.ts";
import { linkToSession, unlinkFromSession } from "../session/session.ts";
import { MAX_UNJOURNALED_MS } from "../storage/write-ahead.ts";

/** The earlier owners of a claim that another client attached to, or releases with its reference. */
interface FormerOwners {
  /** The first one. */
  readonly creator: Session;
  /** The last one before the present owner. */
  previous: Session;
}

function isOutside(scope: EndScope, isHeld: boolean, { ttlMs }: Claim): boolean {
  if (scope === "waiting") return isHeld;
  if (scope === "held") return !isHeld;
  return scope === "session" && ttlMs !== "session";
}

export class ClaimOwnership {
  readonly #table: LockTable<Session>;
  readonly #formerOwners = new Map<ClaimId, FormerOwners>();

  constructor(table: LockTable<Session>) {
    this.#table = table;
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

  /** To be called before a session releases the claim: an owner that did not do so itself is notified. */
  beforeRelease({ owner, claim }: ClaimRecord<Session>, releasedBy: Session): void {
    if (owner !== null && owner !== releasedBy) this.#noteFormerOwner(claim.id, owner);
  }

  /**
   * Ends claims of a session whose client has disconnected. A claim that it only attached to returns to its creator, if
   * that still runs.
   */
  endClaims(session: Session, scope: EndScope, time: Timestamps): void {
    for (const record of [...session.records]) {
      const { claim, isHeld } = record;
      if (isOutside(scope, isHeld, claim)) continue;
      const creator = this.#formerOwners.get(claim.id)?.creator ?? session;
      if (creator !== session && !creator.isEnded) linkToSession(record, creator);
      else this.#table.expireNow(claim.id, MAX_UNJOURNALED_MS, time);
    }
  }

  /**
   * The claim has ended. Its previous owner may still work under a lock that another client has ended: a recheck tells
   * it.
   */
  onRemoved(record: ClaimRecord<Session>): void {
    unlinkFromSession(record);
    const { id } = record.claim;
    const formerOwners = this.#formerOwners.get(id);
    if (formerOwners === undefined) return;
    formerOwners.previous.sink?.pushRecheck(id);
    this.#formerOwners.delete(id);
  }

  #noteFormerOwner(id: ClaimId, owner: Session): void {
    const formerOwners = this.#formerOwners.get(id);
    if (formerOwners === undefined) this.#formerOwners.set(id, { creator: owner, previous: owner });
    else formerOwners.previous = owner;
  }
}
