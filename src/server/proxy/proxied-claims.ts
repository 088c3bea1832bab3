/** What a proxy backend knows about the claims that pass through it: their owners, and their last known states. */

import { believedUntil } from "../../claim/lease-deadline.ts";
import type { EventKind } from "../../lock-table/events.ts";
import type { Answer, Claim, ClaimId, Driver, TokenRange } from "../../spi/driver.ts";
import type { ClaimLifecycle, EventLog } from "../events/event-log.ts";
import type { ServerLimits } from "../limits.ts";
import { ClaimQuotas } from "../local/claim-quotas.ts";
import { RequestError } from "../request-error.ts";
import type { EndScope, RevokeRequest } from "../session/backend.ts";
import type { Session } from "../session/session.ts";

/**
 * One claim that has passed through.
 *
 *   asked -> waiting -> held -> forgotten     as the store has answered; each state but the last may be skipped
 *
 * A revoked claim keeps its state, because it keeps its entry. A claim whose release was recorded keeps it, because the
 * release may fail.
 */
export class ProxiedClaim implements ClaimLifecycle {
  /** The same object throughout the claim's life, as the driver interface requires. */
  readonly claim: Claim;
  /** The account that created it. */
  readonly account: string;
  readonly placedAt: number;
  heldAt = 0;
  token: number | bigint = 0;
  tokenCount = 0;
  state: "asked" | "waiting" | "held" | "forgotten" = "asked";
  /** Answers "none", but keeps its entry in the store until it is released. */
  isRevoked = false;
  /** The session that is notified of a grant; null: detached. */
  session: Session | null = null;
  /** The owner before another client attached to it. */
  previousOwner: Session | null = null;
  /** The session that created it; null: created elsewhere or before a restart of this server, and attached here. */
  creator: Session | null = null;
  /** Number of `claim` calls that are pending or have failed: the store may still carry them out. */
  unansweredCalls = 0;
  /** When the store has forgotten it. */
  expiresAt = 0;
  /** Until when the store certainly keeps it, by the backend's time; answers move it, pushes do not. */
  believedUntil = 0;
  /** The event log has recorded its end. */
  isEndRecorded = false;

  constructor(claim: Claim, account: string, now: number) {
    this.claim = claim;
    this.account = account;
    this.placedAt = now;
  }
}

/**
 * At this number of claims a sweep looks for those that the store must have forgotten; the next one follows at twice
 * the number.
 */
const MIN_SWEEP_SIZE = 1_000;
/** A sweep also runs when a new claim exceeds a quota, but not more often than this. */
const SWEEP_INTERVAL_MS = 1_000;

export class ProxiedClaims {
  readonly #claims = new Map<ClaimId, ProxiedClaim>();
  readonly #idsBySession = new Map<Session, Set<ClaimId>>();
  readonly #driver: Pick<Driver, "forget">;
  readonly #sessionMs: number;
  readonly #eventLog: EventLog | undefined;
  readonly #quotas: ClaimQuotas;
  #sweepSize = MIN_SWEEP_SIZE;
  #lastSweepAt = Number.NEGATIVE_INFINITY;

  constructor(driver: Pick<Driver, "forget">, sessionMs: number, eventLog: EventLog | undefined, limits: ServerLimits) {
    this.#driver = driver;
    this.#sessionMs = sessionMs;
    this.#eventLog = eventLog;
    this.#quotas = new ClaimQuotas(limits);
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

  /** @throws RequestError if the claim exceeds a quota and is new */
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

  /** Makes the session the owner, unless the claim is detached. */
  assignOwner(session: Session, proxied: ProxiedClaim, now: number): void {
    if (proxied.session === null && proxied.state === "held") return;
    if (proxied.session !== session) {
      proxied.previousOwner = proxied.session ?? proxied.previousOwner;
      this.clearOwner(proxied);
    }
    proxied.session = session;
    const ids = this.#idsBySession.get(session) ?? new Set();
    this.#idsBySession.set(session, ids.add(proxied.claim.id));
    proxied.expiresAt = Math.max(proxied.expiresAt, now + this.#resolveTtlMs(proxied.claim));
  }

  /**
   * The claims that end with this session: not those whose creator still runs, nor those created elsewhere that are, or
   * may be, held.
   */
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

  /** Applies an answer of the store. */
  applyAnswer(proxied: ProxiedClaim, answer: Answer, now: number): void {
    if (proxied.state === "forgotten") return;
    if (answer.state === "none") {
      if (answer.reason === "revoked" || answer.reason === "maxHold") {
        this.markRevoked(proxied, answer.reason === "revoked" ? "revoked" : "maxHoldExceeded", now);
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
    if (answer.state === "held") proxied.tokenCount = answer.tokenCount;
    proxied.expiresAt = Math.max(proxied.expiresAt, now + answer.remainingMs);
  }

  /** The tokens of a claim that is certainly held, and not being released; see DriverEvents. `time`: the scale of believedUntil. */
  heldTokens(id: ClaimId, time: number): TokenRange | null {
    const proxied = this.#claims.get(id);
    if (proxied?.state !== "held" || proxied.isRevoked || proxied.isEndRecorded) return null;
    return time < proxied.believedUntil ? { token: BigInt(proxied.token), tokenCount: proxied.tokenCount } : null;
  }

  /** The store has answered a call of this claim that was sent at `sentAt`. */
  extendBelief(proxied: ProxiedClaim, answer: Answer, sentAt: number): void {
    if (answer.state === "none") return;
    const until = believedUntil(sentAt, answer.remainingMs, this.#resolveTtlMs(proxied.claim));
    proxied.believedUntil = Math.max(proxied.believedUntil, until);
  }

  /**
   * Applies revocations by an operator, in one pass over all claims. Returns the targets whose claims came through
   * here.
   */
  applyRevocations(targets: readonly RevokeRequest[], now: number): ReadonlySet<RevokeRequest> {
    const targetsByKey = new Map<string, RevokeRequest[]>();
    for (const target of targets) targetsByKey.set(target.key, [...(targetsByKey.get(target.key) ?? []), target]);
    const revoked = new Map<RevokeRequest, ProxiedClaim>();
    for (const proxied of this.#claims.values()) {
      if (proxied.state !== "held") continue;
      for (const { key } of proxied.claim.locks) {
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

  /** Marks the claim as revoked. It keeps its entry, which its client must release. */
  markRevoked(proxied: ProxiedClaim, kind: "revoked" | "maxHoldExceeded", now: number): void {
    if (proxied.isRevoked) return;
    proxied.isRevoked = true;
    this.#eventLog?.onEvent(kind, proxied, now);
  }

  /** Drops renewed claims that the store never confirmed: they may belong to no client. */
  dropUnconfirmed(renewed: readonly ProxiedClaim[], now: number): void {
    for (const proxied of renewed)
      if (proxied.state === "asked" && proxied.unansweredCalls === 0) this.forget(proxied, "disconnected", now);
  }

  /** The store has no entry of the claim any more, or soon will have none. */
  forget(proxied: ProxiedClaim, kind: EventKind, now: number): void {
    if (proxied.state === "forgotten") return;
    this.#claims.delete(proxied.claim.id);
    this.#quotas.remove(proxied.account, proxied.claim);
    // the previous owner may still work under a lock that another client released with its reference: a recheck tells
    // it
    proxied.previousOwner?.sink?.pushRecheck(proxied.claim.id);
    this.clearOwner(proxied);
    this.recordEnd(proxied, kind, now);
    proxied.state = "forgotten";
    this.#driver.forget?.(proxied.claim);
  }

  /** Records the release. If the owner did not request it, the owner is to be notified. */
  recordRelease(proxied: ProxiedClaim, releasedBy: Session, now: number): void {
    if (proxied.session !== releasedBy) proxied.previousOwner = proxied.session ?? proxied.previousOwner;
    this.recordEnd(proxied, proxied.state === "held" ? "released" : "withdrawn", now);
  }

  /**
   * Records the end, once. A release is recorded when it is sent, because the grant that it causes may arrive before
   * its answer.
   */
  recordEnd(proxied: ProxiedClaim, kind: EventKind, now: number): void {
    // a claim that never had an entry has not ended
    if (proxied.isEndRecorded || proxied.state === "asked") return;
    proxied.isEndRecorded = true;
    this.#eventLog?.onEvent(kind, proxied, now);
  }

  #exceededQuota(claim: Claim, session: Session): string | null {
    return this.#quotas.exceededCount(claim, this.#idsBySession.get(session)?.size ?? 0, session.principal.name);
  }

  /** Forgets claims that the store must have forgotten. */
  #sweep(now: number): void {
    this.#lastSweepAt = now;
    for (const proxied of this.#claims.values()) {
      if (proxied.claim.ttlMs !== "session" && now > proxied.expiresAt + this.#resolveTtlMs(proxied.claim)) {
        this.forget(proxied, "expired", now);
      }
    }
    this.#sweepSize = Math.max(MIN_SWEEP_SIZE, this.#claims.size * 2);
  }

  #resolveTtlMs({ ttlMs }: Claim): number {
    return ttlMs === "session" ? this.#sessionMs : ttlMs;
  }
}

/**
 * Converts a token to a number where that is exact. 0n, from a store without tokens, stays a bigint: the number 0 means
 * that no token is held.
 */
function toCompactToken(token: bigint): number | bigint {
  return token > 0n && token <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(token) : token;
}

/** True if the token is in the claim's token range. */
function hasToken({ token: firstToken, tokenCount }: ProxiedClaim, token: bigint): boolean {
  const offset = token - BigInt(firstToken);
  return offset >= 0n && offset < BigInt(tokenCount);
}
