/**
 * The local queue of one process for the same keys, and the hand-off decision (design A.3).
 *
 * Only the lane's claim stands in the store's line; local requests wait here. A grant brings a run of tokens; each local
 * holder takes the next one, so tokens rise with every holder. Two bounds keep other processes from starving: the run's
 * length and the time since the store's grant. After either the claim is released and another one queues at the end.
 *
 * Invariant: a run is only ever used for claims that take every permit of every key. Beside other holders its later
 * tokens would not lie above theirs.
 */

import { ALL_PERMITS } from "../lock-table/admission.ts";
import type { Linked } from "../util/linked-list.ts";
import { LinkedList } from "../util/linked-list.ts";

export interface HandoffLimits {
  /** Longest run of local holders; 1: no hand-off. */
  readonly handoffs: number;
  /** Longest time after the store's grant at which a hand-off may begin, milliseconds. */
  readonly handoffMs: number;
}

/** Can requests for these holds be served one after another by one claim? */
export function isExclusive(holds: readonly { readonly permits: number; readonly limit: number }[]): boolean {
  for (const { permits, limit } of holds) if (permits < ALL_PERMITS || limit > ALL_PERMITS) return false;
  return true;
}

export class HandoffBudget<R extends Linked<R>> {
  readonly queue: LinkedList<R> = new LinkedList();
  readonly #limits: HandoffLimits;
  #nextToken = 0n;
  /** Tokens of the run, used or not. */
  #tokenCount = 0;
  /** Those not used yet. */
  #tokensLeft = 0;
  #grantedAt = 0;
  /** What the last run says the next one should be. */
  #suggestedCount = 1;

  constructor(limits: HandoffLimits) {
    this.#limits = limits;
  }

  /**
   * How many tokens a claim made now should ask for: one for each who waits, or what the last run has shown to be of use.
   * Who waits is not all: whoever was just served may be on the way back. Those that nobody takes are left out.
   */
  tokensToRequest(): number {
    return Math.min(Math.max(this.queue.size, this.#suggestedCount), this.#limits.handoffs);
  }

  /** The store has granted a run. */
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

  /** The token for the next local holder; null if the claim must go back to the store instead. `hasEnoughLease`: is enough of the lease left? */
  nextToken(now: number, hasEnoughLease: boolean): bigint | null {
    const isInTime = hasEnoughLease && now - this.#grantedAt < this.#limits.handoffMs;
    const canContinue = isInTime && this.queue.first !== null;
    if (canContinue && this.#tokensLeft > 0) return this.firstToken();
    // A run spent while others wait and time is left was too short. Doubling, not all at once: tokens must not outrun their clock.
    this.#suggestedCount = canContinue ? 2 * this.#tokenCount : this.#tokenCount - this.#tokensLeft;
    return null;
  }
}
