/** What a relay knows of the claims that have come through it: whose they are, and where they stood last. */

import type { EventKind } from "../../lock-table/events.ts";
import type { Answer, Claim, ClaimId } from "../../spi/driver.ts";
import type { EndScope, RevokeRequest } from "../backend.ts";
import { RequestError } from "../backend.ts";
import type { ServerLimits } from "../config/limits.ts";
import type { ClaimLifecycle, EventLog } from "../events/event-log.ts";
import { ClaimQuotas } from "../local/claim-quotas.ts";
import type { Session } from "../session/session.ts";

/** One claim that has come through. */
export class ProxiedClaim implements ClaimLifecycle {
  /** The same object for the claim's whole life, as the contract wants it. */
  readonly claim: Claim;
  /** The account that placed it. */
  readonly account: string;
  readonly placedAt: number;
  heldAt = 0;
  token: number | bigint = 0;
  state: "asked" | "waiting" | "held" = "asked";
  /** Answers "none", but keeps its place in the store until it is released. */
  isRevoked = false;
  /** Who is told of a grant; null: detached. */
  session: Session | null = null;
  /** Who had it before another client took it up by its reference. */
  previousOwner: Session | null = null;
  /** Who placed it; null: it was placed elsewhere, or before a restart of the relay, and taken up here. */
  creator: Session | null = null;
  /** `claim` calls that are under way, or failed: the store may yet carry them out. */
  unansweredCalls = 0;
  /** When the store has forgotten it. */
  expiresAt = 0;
  /** The record has been told of its end. */
  isEndRecorded = false;
  /** The relay has forgotten it. */
  isForgotten = false;

  constructor(claim: Claim, account: string, now: number) {
    this.claim = claim;
    this.account = account;
    this.placedAt = now;
  }
}

/** Claims are looked through for those that the store must have forgotten when there are so many, and then twice as many. */
const MIN_SWEEP_SIZE = 1_000;
/** And when there is no room for another, but not more often than this. */
const SWEEP_INTERVAL_MS = 1_000;

export class ProxiedClaims {
  readonly #claims = new Map<ClaimId, ProxiedClaim>();
  readonly #idsBySession = new Map<Session, Set<ClaimId>>();
  readonly #sessionMs: number;
  readonly #eventLog: EventLog | undefined;
  readonly #quotas: ClaimQuotas;
  #sweepSize = MIN_SWEEP_SIZE;
  #lastSweepAt = Number.NEGATIVE_INFINITY;

  constructor(sessionMs: number, eventLog: EventLog | undefined, limits: ServerLimits) {
    this.#sessionMs = sessionMs;
    this.#eventLog = eventLog;
    this.#quotas = new ClaimQuotas(limits, null);
  }

  get size(): number {
    return this.#claims.size;
  }

  get(id: ClaimId): ProxiedClaim | undefined {
    return this.#claims.get(id);
  }

  all(): IterableIterator<ProxiedClaim> {
    return this.#claims.values();
  }

  ofSession(session: Session): ProxiedClaim[] {
    return [...(this.#idsBySession.get(session) ?? [])].map((id) => this.#claims.get(id) as ProxiedClaim);
  }

  /** @throws RequestError if there is no room for this claim, unless it is there already */
  checkQuotas(claim: Claim, session: Session, now: number): void {
    if (this.#exceededQuota(claim, session) === null || this.#claims.has(claim.id)) return;
    if (now - this.#lastSweepAt >= SWEEP_INTERVAL_MS) this.#sweep(now);
    const exceeded = this.#exceededQuota(claim, session);
    if (exceeded !== null) throw new RequestError("LIMIT", `at most ${exceeded}`);
  }

  add(claim: Claim, account: string, now: number): ProxiedClaim {
    const proxied = new ProxiedClaim(claim, account, now);
    this.#claims.set(claim.id, proxied);
    this.#quotas.add(account, claim);
    if (this.#claims.size >= this.#sweepSize) this.#sweep(now);
    return proxied;
  }

  /** Makes it the session's, unless it is detached. */
  assignOwner(session: Session, proxied: ProxiedClaim, now: number): void {
    if (proxied.session === null && proxied.state === "held") return;
    if (proxied.session !== session) {
      proxied.previousOwner = proxied.session ?? proxied.previousOwner;
      this.clearOwner(proxied);
    }
    proxied.session = session;
    const ids = this.#idsBySession.get(session) ?? new Set();
    this.#idsBySession.set(session, ids.add(proxied.claim.id));
    proxied.expiresAt = Math.max(proxied.expiresAt, now + this.#ttlOf(proxied.claim));
  }

  /** What ends with this session: not what its maker goes on with, nor what was made elsewhere and is, or may be, held. */
  findEnding(session: Session, scope: EndScope, now: number): ProxiedClaim[] {
    return this.ofSession(session).filter((proxied) => {
      const { claim, state, creator } = proxied;
      if (scope !== "all" && (scope === "waiting" ? state === "held" : claim.ttlMs !== "session")) return false;
      if (creator === session || creator?.isEnded === true || (creator === null && state === "waiting")) return true;
      if (creator === null) this.clearOwner(proxied);
      else this.assignOwner(creator, proxied, now);
      return false;
    });
  }

  clearOwner(proxied: ProxiedClaim): void {
    const ids = proxied.session === null ? undefined : this.#idsBySession.get(proxied.session);
    ids?.delete(proxied.claim.id);
    if (ids?.size === 0) this.#idsBySession.delete(proxied.session as Session);
    proxied.session = null;
  }

  /** What the store has said of it. */
  applyAnswer(proxied: ProxiedClaim, answer: Answer, now: number): void {
    if (proxied.isForgotten) return;
    if (answer.state === "none") {
      if (answer.reason === "revoked" || answer.reason === "maxHold") {
        this.markRevoked(proxied, answer.reason === "revoked" ? "revoked" : "outstayed", now);
      } else this.forget(proxied, answer.reason === "released" ? "released" : "expired", now);
      return;
    }
    if (answer.state === "held" && proxied.state !== "held") {
      proxied.heldAt = now;
      proxied.token = toCompactToken(answer.token);
      proxied.state = "held";
      this.#eventLog?.onEvent("granted", proxied, now);
    } else if (answer.state === "waiting" && proxied.state === "asked") {
      proxied.state = "waiting";
      this.#eventLog?.onEvent("waiting", proxied, now);
    }
    proxied.expiresAt = Math.max(proxied.expiresAt, now + answer.ttlMs);
  }

  /** An operator has taken these holds away; which of them came through here. All are looked for in one walk. */
  applyRevocations(targets: readonly RevokeRequest[], now: number): ReadonlySet<RevokeRequest> {
    const targetsByKey = new Map<string, RevokeRequest[]>();
    for (const target of targets) targetsByKey.set(target.key, [...(targetsByKey.get(target.key) ?? []), target]);
    const revoked = new Map<RevokeRequest, ProxiedClaim>();
    for (const proxied of this.#claims.values()) {
      if (proxied.state !== "held") continue;
      for (const { key } of proxied.claim.holds) {
        for (const target of targetsByKey.get(key) ?? [])
          if (hasToken(proxied, target.token)) revoked.set(target, proxied);
      }
    }
    for (const [{ now: atOnce }, proxied] of revoked) {
      if (atOnce) this.forget(proxied, "removed", now);
      else this.markRevoked(proxied, "revoked", now);
    }
    return new Set(revoked.keys());
  }

  /** It is to go, but keeps its place: its client is to release it. */
  markRevoked(proxied: ProxiedClaim, kind: "revoked" | "outstayed", now: number): void {
    if (proxied.isRevoked) return;
    proxied.isRevoked = true;
    this.#eventLog?.onEvent(kind, proxied, now);
  }

  /** The store has said nothing of these; what it never said anything of may be nobody's. */
  dropUnconfirmed(renewed: readonly ProxiedClaim[], now: number): void {
    for (const proxied of renewed)
      if (proxied.state === "asked" && proxied.unansweredCalls === 0) this.forget(proxied, "gone", now);
  }

  /** The store has no place of it any more, or soon. */
  forget(proxied: ProxiedClaim, kind: EventKind, now: number): void {
    if (proxied.isForgotten) return;
    proxied.isForgotten = true;
    this.#claims.delete(proxied.claim.id);
    this.#quotas.remove(proxied.account, proxied.claim);
    // it may work on what somebody else has just given back by its reference: it asks, and is told
    proxied.previousOwner?.sink?.pushRecheck(proxied.claim.id);
    this.clearOwner(proxied);
    this.recordEnd(proxied, kind, now);
  }

  /** It is released, perhaps by another session than that which has it and is to hear of that. */
  recordRelease(proxied: ProxiedClaim, releasedBy: Session, now: number): void {
    if (proxied.session !== releasedBy) proxied.previousOwner = proxied.session ?? proxied.previousOwner;
    this.recordEnd(proxied, proxied.state === "held" ? "released" : "left", now);
  }

  /**
   * Tells the record of its end, once. A release is told when it is sent: the grant that it brings about may come sooner
   * than its answer.
   */
  recordEnd(proxied: ProxiedClaim, kind: EventKind, now: number): void {
    // what never had a place has not ended
    if (proxied.isEndRecorded || proxied.state === "asked") return;
    proxied.isEndRecorded = true;
    this.#eventLog?.onEvent(kind, proxied, now);
  }

  #exceededQuota(claim: Claim, session: Session): string | null {
    return this.#quotas.exceededCount(claim, this.#idsBySession.get(session)?.size ?? 0, session.principal.name);
  }

  /** Forgets what the store must have forgotten. */
  #sweep(now: number): void {
    this.#lastSweepAt = now;
    for (const proxied of this.#claims.values()) {
      if (proxied.claim.ttlMs !== "session" && now > proxied.expiresAt + this.#ttlOf(proxied.claim)) {
        this.forget(proxied, "expired", now);
      }
    }
    this.#sweepSize = Math.max(MIN_SWEEP_SIZE, this.#claims.size * 2);
  }

  #ttlOf({ ttlMs }: Claim): number {
    return ttlMs === "session" ? this.#sessionMs : ttlMs;
  }
}

/** As a number where one can hold it; 0n, of a store without tokens, stays what it is: 0 would mean that none is held. */
function toCompactToken(token: bigint): number | bigint {
  return token > 0n && token <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(token) : token;
}

/** Is the token one of its run? */
function hasToken({ token, claim }: ProxiedClaim, sought: bigint): boolean {
  const offset = sought - BigInt(token);
  return offset >= 0n && offset < BigInt(claim.tokens);
}
