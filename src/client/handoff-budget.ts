/**
 * Decides whether a local queue may hand its grant off to the next local waiter (decision 0004).
 *
 * Only one claim per local queue is in the store's queue; local requests wait here. A grant brings a token range; each
 * local holder takes its next token, so tokens rise with every holder. Two limits keep other processes from starving: the
 * length of the range, and the time since the store's grant. At either limit the claim is released, and a new one enters
 * the store's queue at the end.
 *
 * Invariant: a token range is only used for claims that take every permit of every key. With other holders beside it, the
 * later tokens of the range would not be higher than theirs.
 */

import { ALL_PERMITS } from "../spi/driver.ts";

export interface HandoffLimits {
  /** The most local holders per grant; 1: no hand-off. */
  readonly handoffs: number;
  /** How long after the store's grant a hand-off may begin, in milliseconds. */
  readonly handoffMs: number;
}

/** Can one claim serve several requests for these locks one after another? */
export function isExclusive(locks: readonly { readonly permits: number; readonly limit: number }[]): boolean {
  for (const { permits, limit } of locks) if (permits < ALL_PERMITS || limit > ALL_PERMITS) return false;
  return true;
}

export class HandoffBudget {
  readonly #limits: HandoffLimits;
  #nextToken = 0n;
  /** The length of the token range. */
  #tokenCount = 0;
  /** How many tokens of the range are unused. */
  #tokensLeft = 0;
  #grantedAt = 0;
  /** The length for the next range, from the use of the last one. */
  #suggestedCount = 1;

  constructor(limits: HandoffLimits) {
    this.#limits = limits;
  }

  /**
   * How many tokens a claim made now should request: one per waiter, or as many as the last range suggests. The number of
   * waiters alone is too low, since holders that have just released often ask again at once. Unused tokens are skipped.
   */
  tokensToRequest(waiterCount: number): number {
    return Math.min(Math.max(waiterCount, this.#suggestedCount), this.#limits.handoffs);
  }

  /** The store has granted a token range. */
  onGranted(token: bigint, tokenCount: number, now: number): void {
    this.#nextToken = token;
    this.#tokenCount = Math.min(tokenCount, this.#limits.handoffs);
    this.#tokensLeft = this.#tokenCount;
    this.#grantedAt = now;
  }

  /** The token for the grant's first holder. */
  firstToken(): bigint {
    this.#tokensLeft--;
    return this.#nextToken++;
  }

  /**
   * Returns the token for the next local holder; null if the claim must be released instead.
   * @param isWanted a request waits, and enough of the lease is left for it
   */
  nextToken(now: number, isWanted: boolean): bigint | null {
    const canContinue = isWanted && now - this.#grantedAt < this.#limits.handoffMs;
    if (canContinue && this.#tokensLeft > 0) return this.firstToken();
    // A range that is used up with waiters and time left was too short: double it (decision 0018). Larger steps would let
    // tokens run ahead of the clock that the token issuer follows.
    this.#suggestedCount = canContinue ? 2 * this.#tokenCount : this.#tokenCount - this.#tokensLeft;
    return null;
  }
}
