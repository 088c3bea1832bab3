/**
 * Decides whether a local queue may hand its grant off to the next local request (decisions 0004 and 0045).
 *
 * Only one claim per local queue is in the store's queue; local requests wait here. A grant brings a token range; each
 * local holder takes its next token, so tokens rise with every holder.
 *
 *   unwanted   no other claim is known to wait: the turn is bounded by its tokens and by its lease
 *   wanted     another claim may wait: at most `handoffs` holders, that of this moment included, and `handoffMs` from now
 *
 * A turn becomes wanted at its first recall. On a store that does not push recalls every turn is wanted from its grant on,
 * since other processes must not starve. At the end of its bounds the claim is released, and a new one enters the store's
 * queue at the end.
 *
 * Invariants: a token range is only used for claims that take every permit of every key. With other holders beside it, the
 * later tokens of the range would not be higher than theirs. No hand-off takes a token beyond the range that the store's
 * last answer has.
 */

import { ALL_PERMITS } from "../spi/driver.ts";

/** The longest token range: used up in a second by a process that does nothing but lock, and 65 ms of the store's clock. */
const MAX_TOKENS = 65_536;

/** How many tokens a claim requests at least that may be kept for later requests: with one it could not be used again. */
const MIN_CACHED_TOKENS = 16;

export interface HandoffLimits {
  /** The most local holders per turn once it is wanted; 1: no hand-off. */
  readonly handoffs: number;
  /** How long a turn goes on once it is wanted, in milliseconds. */
  readonly handoffMs: number;
}

/** Can one claim serve several requests for these locks one after another? */
export function isExclusive(locks: readonly { readonly permits: number; readonly limit: number }[]): boolean {
  for (const { permits, limit } of locks) if (permits < ALL_PERMITS || limit > ALL_PERMITS) return false;
  return true;
}

export class HandoffBudget {
  readonly #limits: HandoffLimits;
  /** The store pushes recalls. */
  readonly #isRecallable: boolean;
  #nextToken = 0n;
  /** The length of the token range. */
  tokenCount = 0;
  /** How many tokens of the range are unused. */
  #tokensLeft = 0;
  /** When the turn became wanted; Infinity: it has not. */
  #wantedAt = Number.POSITIVE_INFINITY;
  /** How many hand-offs a wanted turn has left. */
  #handoffsLeft = 0;
  /** The length for the next range, from the use of the last one. */
  suggestedCount: number;
  /** How many tokens had been used when a renewal was last sent. */
  #usedAtRenewal = 0;

  constructor(limits: HandoffLimits, isRecallable: boolean, suggestedCount = 1) {
    this.#limits = limits;
    this.suggestedCount = suggestedCount;
    this.#isRecallable = isRecallable && limits.handoffs > 1;
  }

  /**
   * How many tokens a claim made now should request: one per waiter, or as many as the last range suggests. The number of
   * waiters alone is too low, since holders that have just released often ask again at once. Unused tokens are skipped.
   * @param isCached the claim may be kept for later requests
   */
  tokensToRequest(waiterCount: number, isCached: boolean): number {
    const count = Math.max(waiterCount, this.suggestedCount, isCached ? MIN_CACHED_TOKENS : 1);
    return Math.min(count, this.#isRecallable ? MAX_TOKENS : this.#limits.handoffs);
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
    if (!this.#isRecallable || usedSince < 2 || used < this.tokenCount / 2) return 0;
    const wanted = Math.min(used + 2 * usedSince, MAX_TOKENS);
    return wanted > this.tokenCount ? wanted : 0;
  }

  /** The store has granted a token range. */
  onGranted(token: bigint, tokenCount: number, now: number): void {
    this.#nextToken = token;
    this.tokenCount = this.#isRecallable ? tokenCount : Math.min(tokenCount, this.#limits.handoffs);
    this.#tokensLeft = this.tokenCount;
    this.#usedAtRenewal = 0;
    this.#wantedAt = Number.POSITIVE_INFINITY;
    if (!this.#isRecallable) this.onRecalled(now);
  }

  /** The store's last answer has a token range of this length. */
  setTokenCount(tokenCount: number): void {
    if (!this.#isRecallable || tokenCount === this.tokenCount) return;
    const used = this.tokenCount - this.#tokensLeft;
    this.tokenCount = tokenCount;
    this.#tokensLeft = Math.max(tokenCount - used, 0);
  }

  /** Another claim waits, as far as known. */
  onRecalled(now: number): void {
    if (this.#wantedAt !== Number.POSITIVE_INFINITY) return;
    this.#wantedAt = now;
    this.#handoffsLeft = this.#limits.handoffs - 1;
  }

  get hasTokens(): boolean {
    return this.#tokensLeft > 0;
  }

  /** The token for the grant's first holder, or for a request that uses a cached lock. Only while there is one. */
  takeToken(): bigint {
    this.#tokensLeft--;
    return this.#nextToken++;
  }

  /**
   * Returns the token for the next local holder; null if the claim must be released instead.
   * @param isWanted a local request waits, and enough of the lease is left for it
   */
  nextToken(now: number, isWanted: boolean): bigint | null {
    const canContinue = isWanted && this.#allowsHandoff(now);
    if (canContinue && this.#tokensLeft > 0) {
      this.#handoffsLeft--;
      return this.takeToken();
    }
    this.endRange(canContinue);
    return null;
  }

  /**
   * The claim is about to be released.
   * @param isTooShort its range is used up, and its holder could have gone on
   */
  endRange(isTooShort: boolean): void {
    // A range that was too short is doubled (decision 0018). Larger steps would let tokens run ahead of the clock that the
    // token issuer follows.
    this.suggestedCount = isTooShort ? 2 * this.tokenCount : this.tokenCount - this.#tokensLeft;
  }

  #allowsHandoff(now: number): boolean {
    if (this.#wantedAt === Number.POSITIVE_INFINITY) return true;
    return this.#handoffsLeft > 0 && now - this.#wantedAt < this.#limits.handoffMs;
  }
}
