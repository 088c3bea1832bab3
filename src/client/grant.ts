/**
 * What a client has of a lock from its grant until its claim is released: the claim, the tokens of its range, and the local holder
 * (decisions 0004, 0018 and 0045).
 *
 *   used   a local hold has the lock
 *   idle   no request here uses it: a cached lock, which is renewed like one in use (cached-locks.ts)
 *
 * Only one claim per local queue is in the store's queue; local requests wait in this process. When a holder has released the lock, next()
 * says whether the next request gets it, the grant is kept for a later one, or the claim is released. Each holder takes the next token of
 * the range, so tokens rise with every holder.
 *
 *   unwanted   no other claim is known to wait: bounded by its tokens and by its lease
 *   wanted     another claim may wait: at most `handoffs` holders, that of this moment included, and `handoffMs` from now
 *
 * A grant becomes wanted at its first recall. On a store that does not push recalls every grant is wanted from the start, since other
 * processes must not starve. At the end of its bounds the claim is released, and a new one enters the store's queue at the end.
 *
 * Invariants
 * - A token range is only used for claims that take every permit of every key. With other holders beside it, the later tokens of the
 *   range would not be higher than theirs. No request gets a token beyond the range that the store's last answer has.
 * - An idle grant keeps no process alive: neither the client's timer nor the driver's connections. One that was recalled is never idle again.
 */

import type { HeldState } from "../claim/state.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import type { CachedLocks } from "./cached-locks.ts";
import type { ActiveClaim } from "./engine.ts";
import type { LocalHold } from "./local-hold.ts";
import type { ScheduledTask } from "./scheduler.ts";

/** The longest token range: used up in a second by a process that does nothing but lock, and 65 ms of the store's clock. */
const MAX_TOKENS = 65_536;

/** How many tokens a claim requests at least that may be kept for later requests: with one it could not be used again. */
const MIN_CACHED_TOKENS = 16;

export interface HandoffLimits {
  /** The most local holders once the grant is wanted; 1: no hand-off. */
  readonly handoffs: number;
  /** How long it goes on once it is wanted, in milliseconds. */
  readonly handoffMs: number;
  /** The store pushes recalls, so that a grant is not wanted until then. */
  readonly isRecallable: boolean;
}

/** Can one claim serve several requests for these locks one after another? */
export function isExclusive(locks: readonly { readonly permits: number; readonly limit: number }[]): boolean {
  for (const { permits, limit } of locks) if (permits < ALL_PERMITS || limit > ALL_PERMITS) return false;
  return true;
}

/**
 * How many tokens a claim made now should request: one per waiter, or as many as the last range suggests. The number of waiters alone is
 * too low, since holders that have just released often ask again at once. Unused tokens are skipped.
 * @param isCached the grant may be kept for later requests
 */
export function tokensToRequest(
  { handoffs, isRecallable }: HandoffLimits,
  waiterCount: number,
  suggestedCount: number,
  isCached: boolean,
): number {
  const count = Math.max(waiterCount, suggestedCount, isCached ? MIN_CACHED_TOKENS : 1);
  return Math.min(count, isRecallable ? MAX_TOKENS : handoffs);
}

/** The local queue of a grant. */
interface GrantQueue {
  /** Releases the claim, which is idle. */
  giveBack(now: number): void;
}

export class Grant implements ScheduledTask {
  readonly activeClaim: ActiveClaim;
  /** The name of its queue; null: it can be neither handed on nor kept. */
  readonly name: string | null;
  /** The local holder; null: it is idle, or has just been released. */
  holder: LocalHold | null = null;
  readonly #limits: HandoffLimits;
  #nextToken: bigint;
  /** The length of the token range. */
  tokenCount: number;
  /** How many tokens of the range are unused. */
  #tokensLeft: number;
  /** The length for the next range; 0: not known yet. */
  suggestedCount = 0;
  /** How many tokens had been used when a renewal was last sent. */
  #usedAtRenewal = 0;
  /** When it became wanted; Infinity: it has not. */
  #wantedAt = Number.POSITIVE_INFINITY;
  /** How many hand-offs it has left once it is wanted. */
  #handoffsLeft = 0;
  readonly #cachedLocks: CachedLocks;
  readonly #queue: GrantQueue;
  isIdle = false;
  idleSince = 0;
  /** It was used again after it had been idle. */
  wasReused = false;
  #cacheMs = 0;
  /** It keeps the process alive like a lock in use. */
  #isCounted = true;
  /** It waits for the end of the event loop's turn, at which it stops to count. */
  isUnsettled = false;
  // a scheduled task: due when it may have been idle for long enough, or is to be asked about
  readonly mayRunEarly = false;
  dueAt = 0;
  heapIndex = -1;

  /** @param activeClaim has just been granted */
  constructor(
    queue: GrantQueue,
    cachedLocks: CachedLocks,
    name: string | null,
    limits: HandoffLimits,
    activeClaim: ActiveClaim,
    now: number,
  ) {
    this.#queue = queue;
    this.#cachedLocks = cachedLocks;
    this.name = name;
    this.#limits = limits;
    this.activeClaim = activeClaim;
    const { token, tokenCount } = activeClaim.state as HeldState;
    this.#nextToken = token;
    this.tokenCount = limits.isRecallable ? tokenCount : Math.min(tokenCount, limits.handoffs);
    this.#tokensLeft = this.tokenCount;
    if (!limits.isRecallable || activeClaim.isWanted) this.becomeWanted(now);
  }

  get hasTokens(): boolean {
    return this.#tokensLeft > 0;
  }

  /** The token for the first holder, or for one that next() or reuse() allows. */
  takeToken(): bigint {
    this.#tokensLeft--;
    return this.#nextToken++;
  }

  /** Another claim waits, as far as known. */
  becomeWanted(now: number): void {
    if (this.#wantedAt !== Number.POSITIVE_INFINITY) return;
    this.#wantedAt = now;
    this.#handoffsLeft = this.#limits.handoffs - 1;
  }

  /**
   * What follows when the holder has released the lock. "handOn": the next request gets it, with the next token.
   * @param isWantedHere a local request waits, and enough of the lease is left for it
   * @param mayKeep none does, and the claim may be kept
   */
  next(now: number, isWantedHere: boolean, mayKeep: boolean): "handOn" | "keep" | "end" {
    if (mayKeep && this.hasTokens) return "keep";
    const canGoOn = (isWantedHere || mayKeep) && this.#allowsHandoff(now);
    if (canGoOn && this.hasTokens) {
      this.#handoffsLeft--;
      return "handOn";
    }
    this.suggestTokens(canGoOn);
    return "end";
  }

  /**
   * The claim is about to be released: suggests the length of the next range, from the use of this one.
   * @param isTooShort its range is used up, and its holder could have gone on
   */
  suggestTokens(isTooShort: boolean): void {
    // A range that was too short is doubled (decision 0018). Larger steps would let tokens run ahead of the clock that the
    // token issuer follows.
    this.suggestedCount = isTooShort ? 2 * this.tokenCount : this.tokenCount - this.#tokensLeft;
  }

  /**
   * How many tokens the claim should have in all after a renewal that is sent now; 0: as many as it has. Twice the use since
   * the last renewal is added when half of the range is used.
   */
  tokensToRenew(): number {
    const used = this.tokenCount - this.#tokensLeft;
    const usedSince = used - this.#usedAtRenewal;
    this.#usedAtRenewal = used;
    // most locks have one holder for many renewals: they need no more tokens
    if (!this.#limits.isRecallable || usedSince < 2 || used < this.tokenCount / 2) return 0;
    const wanted = Math.min(used + 2 * usedSince, MAX_TOKENS);
    return wanted > this.tokenCount ? wanted : 0;
  }

  /** The store's last answer has a token range of this length. */
  setTokenCount(tokenCount: number): void {
    if (!this.#limits.isRecallable || tokenCount === this.tokenCount) return;
    const used = this.tokenCount - this.#tokensLeft;
    this.tokenCount = tokenCount;
    this.#tokensLeft = Math.max(tokenCount - used, 0);
  }

  /** The last holder here has released the lock, and the grant is kept. */
  becomeIdle(now: number, cacheMs: number): void {
    this.isIdle = true;
    this.idleSince = now;
    this.#cacheMs = cacheMs;
    this.#cachedLocks.add(this);
    // a task that is due before stays: moving it for each use would cost more than one call too many
    const dueAt = this.#nextDueAt(now);
    if (this.heapIndex === -1 || dueAt < this.dueAt) this.#cachedLocks.engine.scheduler.schedule(this, dueAt);
    if (this.#isCounted && !this.isUnsettled) this.#cachedLocks.settleLater(this);
  }

  /** A request here uses it again. */
  becomeUsed(): void {
    this.isIdle = false;
    if (!this.wasReused) {
      this.wasReused = true;
      this.#cachedLocks.recordReuse(this);
    }
    if (!this.#isCounted) this.#setCounted(true);
  }

  /** Still idle at the end of the event loop's turn: it keeps the process alive no longer. */
  settle(): void {
    this.isUnsettled = false;
    if (this.isIdle && this.#isCounted) this.#setCounted(false);
  }

  onDue(now: number): void {
    if (this.isIdle && now >= this.idleSince + this.#cacheMs) return this.giveBack(now);
    // one in use, too: it must not be idle again while another claim waits
    if (this.#cachedLocks.polls) this.#cachedLocks.engine.changed(this.activeClaim.claim.id);
    // the answer may have ended it
    if (this.isIdle) this.#cachedLocks.engine.scheduler.schedule(this, this.#nextDueAt(now));
  }

  giveBack(now: number): void {
    this.#queue.giveBack(now);
  }

  /** Its claim ends, or is given up. */
  end(): void {
    this.isIdle = false;
    this.#cachedLocks.remove(this);
    if (this.heapIndex !== -1) this.#cachedLocks.engine.scheduler.cancel(this);
    // the release of the claim, or a later use, counts by itself
    if (!this.#isCounted) this.#setCounted(true);
  }

  #allowsHandoff(now: number): boolean {
    if (this.#wantedAt === Number.POSITIVE_INFINITY) return true;
    return this.#handoffsLeft > 0 && now - this.#wantedAt < this.#limits.handoffMs;
  }

  #nextDueAt(now: number): number {
    const endsAt = this.idleSince + this.#cacheMs;
    return Math.min(endsAt, this.#cachedLocks.nextPollAt(now, now - this.idleSince));
  }

  #setCounted(isCounted: boolean): void {
    this.#isCounted = isCounted;
    this.#cachedLocks.engine.setIdle(this.activeClaim, !isCounted);
  }
}
