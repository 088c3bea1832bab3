/** Whose the claims of the keeper's table are, how many each may have, and for how long each may be held. */

import type { Entry } from "../core/entry.ts";
import type { Observer } from "../core/observer.ts";
import type { Table } from "../core/table.ts";
import type { Claim, ClaimId } from "../spi/driver.ts";
import { ANYBODY } from "./access.ts";
import type { Which } from "./backend.ts";
import { SHORT_MS } from "./durability.ts";
import type { ClaimBounds, ServerLimits } from "./limits.ts";
import { Outstays } from "./outstays.ts";
import { Room } from "./room.ts";
import { disown, own, Session } from "./session.ts";
import type { Time } from "./times.ts";

export class Tenants {
  readonly #room: Room;
  readonly #outstays = new Outstays();
  /** Who has a claim that another client took up, or gives back, by its reference. */
  readonly #former = new Map<ClaimId, Session>();
  /** Who had it before any other took it up. */
  readonly #makers = new Map<ClaimId, Session>();

  /** next: told of all that the table tells. */
  constructor(limits: ServerLimits, next: Observer | null, formerRoom?: ClaimBounds) {
    this.#room = new Room(limits, next, formerRoom);
  }

  /** What the table must tell of what happens in it. */
  get observer(): Observer {
    return this.#room;
  }

  /** @throws Refusal if there is no room for this claim, unless it is there already */
  check(table: Table, session: Session, claim: Claim): void {
    this.#room.check(table, session, claim);
  }

  /** Is there room for a claim that the session tells of after a restart? */
  fits(table: Table, session: Session, claim: Claim, isHeld: boolean): boolean {
    return this.#room.crowdedBack(table, session, claim, isHeld) === null;
  }

  /** Makes the claim the session's; one that nobody has had yet counts from now on. */
  own(entry: Entry, session: Session): void {
    if (!entry.kept) this.#room.add(entry.by, entry.claim);
    const former = entry.owner;
    own(entry, session);
    if (former === entry.owner || !(former instanceof Session)) return;
    this.#former.set(entry.claim.id, former);
    if (!this.#makers.has(entry.claim.id)) this.#makers.set(entry.claim.id, former);
  }

  /** It was to leave the session and did not, if it is still there; the session may have ended meanwhile. */
  keep(table: Table, entry: Entry, session: Session, time: Time): void {
    if (table.entries.get(entry.claim.id) !== entry) return;
    this.own(entry, session);
    if (session.ended) this.end(table, session, "all", time);
  }

  /** It is given back, perhaps by another client than whose it is, who is to hear of that. */
  leaving({ owner, claim }: Entry, by: Session): void {
    if (owner !== by && owner instanceof Session) this.#former.set(claim.id, owner);
  }

  /** If it is held: for as long as its holder's rules allow, from the first time that this is said. */
  bound(entry: Entry, { principal }: Session, now: number): void {
    if (principal !== ANYBODY && entry.held) this.#outstays.granted(entry, principal, now);
  }

  /** It has come back from disk, with what it still may be held if that is bounded. */
  restored(entry: Entry, owner: Session | null, holdLeftMs: number | undefined, now: number): void {
    this.#room.add(entry.by, entry.claim);
    if (holdLeftMs !== undefined) this.#outstays.until(entry, now + holdLeftMs);
    entry.kept = true;
    if (owner !== null) own(entry, owner);
  }

  /** Ends claims of a session whose client has gone; not what it only took up and whose maker goes on. */
  end(table: Table, session: Session, which: Which, { now, micros }: Time): void {
    for (const entry of [...session.entries]) {
      const { claim, held } = entry;
      if (which === "waiting" ? held : which === "session" && claim.ttlMs !== "session") continue;
      const maker = this.#makers.get(claim.id) ?? session;
      if (maker !== session && !maker.ended) own(entry, maker);
      else table.drop(claim.id, SHORT_MS, now, micros);
    }
  }

  forgotten(entry: Entry): void {
    disown(entry);
    this.#tellFormer(entry.claim.id);
    this.#room.remove(entry.by, entry.claim);
    this.#outstays.forget(entry);
  }

  /** It may work on what somebody else has just given back by its reference: it asks, and is told. */
  #tellFormer(id: ClaimId): void {
    const former = this.#former.get(id);
    if (former === undefined) return; // then it has no maker either
    former.link?.nudge(id);
    this.#former.delete(id);
    this.#makers.delete(id);
  }

  /** When advance() has work. */
  nextDue(): number {
    return this.#outstays.next();
  }

  /** Revokes what has been held for too long. */
  advance(table: Table, { now, micros }: Time): void {
    this.#outstays.advance(table, now, micros);
  }
}
