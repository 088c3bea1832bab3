/** What a relay knows of the claims that have come through it: whose they are, and where they stood last. */

import type { Happening } from "../core/observer.ts";
import type { Answer, Claim, ClaimId } from "../spi/driver.ts";
import type { Revocation, Which } from "./backend.ts";
import { Refusal } from "./backend.ts";
import type { ServerLimits } from "./limits.ts";
import type { Lived, Record } from "./record.ts";
import { Room } from "./room.ts";
import type { Session } from "./session.ts";

/** One claim that has come through. */
export class Relayed implements Lived {
  /** The same object for the claim's whole life, as the contract wants it. */
  readonly claim: Claim;
  /** The account that placed it. */
  readonly by: string;
  readonly placedAt: number;
  heldAt = 0;
  token: number | bigint = 0;
  state: "asked" | "waiting" | "held" = "asked";
  /** Answers "none", but keeps its place in the store until it is released. */
  revoked = false;
  /** Who is told of a grant; null: detached. */
  session: Session | null = null;
  /** Who had it before another client took it up by its reference. */
  former: Session | null = null;
  /** Who placed it; null: it was placed elsewhere, or before a restart of the relay, and taken up here. */
  maker: Session | null = null;
  /** `claim` calls that are under way, or failed: the store may yet carry them out. */
  unanswered = 0;
  /** When the store has forgotten it. */
  until = 0;
  /** The record has been told of its end. */
  ended = false;
  /** The relay has forgotten it. */
  gone = false;

  constructor(claim: Claim, by: string, now: number) {
    this.claim = claim;
    this.by = by;
    this.placedAt = now;
  }
}

/** Claims are looked through for those that the store must have forgotten when there are so many, and then twice as many. */
const FIRST_SWEEP = 1_000;
/** And when there is no room for another, but not more often than this. */
const SWEEP_MS = 1_000;

export class RelayedClaims {
  readonly #known = new Map<ClaimId, Relayed>();
  readonly #ids = new Map<Session, Set<ClaimId>>();
  readonly #sessionMs: number;
  readonly #record: Record | undefined;
  readonly #room: Room;
  #sweepAt = FIRST_SWEEP;
  #sweptAt = Number.NEGATIVE_INFINITY;

  constructor(sessionMs: number, record: Record | undefined, limits: ServerLimits) {
    this.#sessionMs = sessionMs;
    this.#record = record;
    this.#room = new Room(limits, null);
  }

  get size(): number {
    return this.#known.size;
  }

  get(id: ClaimId): Relayed | undefined {
    return this.#known.get(id);
  }

  all(): IterableIterator<Relayed> {
    return this.#known.values();
  }

  of(session: Session): Relayed[] {
    return [...(this.#ids.get(session) ?? [])].map((id) => this.#known.get(id) as Relayed);
  }

  /** @throws Refusal if there is no room for this claim, unless it is there already */
  check(claim: Claim, session: Session, now: number): void {
    if (this.#full(claim, session) === null || this.#known.has(claim.id)) return;
    if (now - this.#sweptAt >= SWEEP_MS) this.#sweep(now);
    const what = this.#full(claim, session);
    if (what !== null) throw new Refusal("LIMIT", `at most ${what}`);
  }

  add(claim: Claim, by: string, now: number): Relayed {
    const known = new Relayed(claim, by, now);
    this.#known.set(claim.id, known);
    this.#room.add(by, claim);
    if (this.#known.size >= this.#sweepAt) this.#sweep(now);
    return known;
  }

  /** Makes it the session's, unless it is detached. */
  own(session: Session, known: Relayed, now: number): void {
    if (known.session === null && known.state === "held") return;
    if (known.session !== session) {
      known.former = known.session ?? known.former;
      this.disown(known);
    }
    known.session = session;
    const ids = this.#ids.get(session) ?? new Set();
    this.#ids.set(session, ids.add(known.claim.id));
    known.until = Math.max(known.until, now + this.#ttl(known.claim));
  }

  /** What ends with this session: not what its maker goes on with, nor what was made elsewhere and is, or may be, held. */
  endingWith(session: Session, which: Which, now: number): Relayed[] {
    return this.of(session).filter((known) => {
      const { claim, state, maker } = known;
      if (which !== "all" && (which === "waiting" ? state === "held" : claim.ttlMs !== "session")) return false;
      if (maker === session || maker?.ended === true || (maker === null && state === "waiting")) return true;
      if (maker === null) this.disown(known);
      else this.own(maker, known, now);
      return false;
    });
  }

  disown(known: Relayed): void {
    const ids = known.session === null ? undefined : this.#ids.get(known.session);
    ids?.delete(known.claim.id);
    if (ids?.size === 0) this.#ids.delete(known.session as Session);
    known.session = null;
  }

  /** What the store has said of it. */
  learn(known: Relayed, answer: Answer, now: number): void {
    if (known.gone) return;
    if (answer.state === "none") {
      if (answer.reason === "revoked" || answer.reason === "maxHold") {
        this.revoked(known, answer.reason === "revoked" ? "revoked" : "outstayed", now);
      } else this.forget(known, answer.reason === "released" ? "released" : "expired", now);
      return;
    }
    if (answer.state === "held" && known.state !== "held") {
      known.heldAt = now;
      known.token = tokenOf(answer.token);
      known.state = "held";
      this.#record?.happened("granted", known, now);
    } else if (answer.state === "waiting" && known.state === "asked") {
      known.state = "waiting";
      this.#record?.happened("waiting", known, now);
    }
    known.until = Math.max(known.until, now + answer.ttlMs);
  }

  /** An operator has taken these holds away; which of them came through here. All are looked for in one walk. */
  revokedBy(targets: readonly Revocation[], now: number): ReadonlySet<Revocation> {
    const wanted = new Map<string, Revocation[]>();
    for (const target of targets) wanted.set(target.key, [...(wanted.get(target.key) ?? []), target]);
    const found = new Map<Revocation, Relayed>();
    for (const known of this.#known.values()) {
      if (known.state !== "held") continue;
      for (const { key } of known.claim.holds) {
        for (const target of wanted.get(key) ?? []) if (hasToken(known, target.token)) found.set(target, known);
      }
    }
    for (const [{ now: atOnce }, known] of found) {
      if (atOnce) this.forget(known, "removed", now);
      else this.revoked(known, "revoked", now);
    }
    return new Set(found.keys());
  }

  /** It is to go, but keeps its place: its client is to release it. */
  revoked(known: Relayed, how: "revoked" | "outstayed", now: number): void {
    if (known.revoked) return;
    known.revoked = true;
    this.#record?.happened(how, known, now);
  }

  /** The store has said nothing of these; what it never said anything of may be nobody's. */
  unheard(asked: readonly Relayed[], now: number): void {
    for (const known of asked) if (known.state === "asked" && known.unanswered === 0) this.forget(known, "gone", now);
  }

  /** The store has no place of it any more, or soon. */
  forget(known: Relayed, how: Happening, now: number): void {
    if (known.gone) return;
    known.gone = true;
    this.#known.delete(known.claim.id);
    this.#room.remove(known.by, known.claim);
    // it may work on what somebody else has just given back by its reference: it asks, and is told
    known.former?.link?.nudge(known.claim.id);
    this.disown(known);
    this.ending(known, how, now);
  }

  /** It is released, perhaps by another session than that which has it and is to hear of that. */
  leaving(known: Relayed, by: Session, now: number): void {
    if (known.session !== by) known.former = known.session ?? known.former;
    this.ending(known, known.state === "held" ? "released" : "left", now);
  }

  /**
   * Tells the record of its end, once. A release is told when it is sent: the grant that it brings about may come sooner
   * than its answer.
   */
  ending(known: Relayed, how: Happening, now: number): void {
    // what never had a place has not ended
    if (known.ended || known.state === "asked") return;
    known.ended = true;
    this.#record?.happened(how, known, now);
  }

  #full(claim: Claim, session: Session): string | null {
    return this.#room.crowd(claim, this.#ids.get(session)?.size ?? 0, session.principal.name);
  }

  /** Forgets what the store must have forgotten. */
  #sweep(now: number): void {
    this.#sweptAt = now;
    for (const known of this.#known.values()) {
      if (known.claim.ttlMs !== "session" && now > known.until + this.#ttl(known.claim)) {
        this.forget(known, "expired", now);
      }
    }
    this.#sweepAt = Math.max(FIRST_SWEEP, this.#known.size * 2);
  }

  #ttl({ ttlMs }: Claim): number {
    return ttlMs === "session" ? this.#sessionMs : ttlMs;
  }
}

/** As a number where one can hold it; 0n, of a store without tokens, stays what it is: 0 would mean that none is held. */
function tokenOf(token: bigint): number | bigint {
  return token > 0n && token <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(token) : token;
}

/** Is the token one of its run? */
function hasToken({ token, claim }: Relayed, wanted: bigint): boolean {
  const at = wanted - BigInt(token);
  return at >= 0n && at < BigInt(claim.tokens);
}
