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

import { ALL_PERMITS } from "./line.ts";
import type { Linked } from "./queue.ts";
import { LinkedList } from "./queue.ts";

export interface LaneLimits {
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

export class Lane<R extends Linked<R>> {
  readonly queue: LinkedList<R> = new LinkedList();
  readonly #limits: LaneLimits;
  #nextToken = 0n;
  /** Tokens of the run, used or not. */
  #run = 0;
  /** Those not used yet. */
  #left = 0;
  #grantedAt = 0;
  /** What the last run says the next one should be. */
  #useful = 1;

  constructor(limits: LaneLimits) {
    this.#limits = limits;
  }

  /**
   * How many tokens a claim made now should ask for: one for each who waits, or what the last run has shown to be of use.
   * Who waits is not all: whoever was just served may be on the way back. Those that nobody takes are left out.
   */
  tokensWanted(): number {
    return Math.min(Math.max(this.queue.size, this.#useful), this.#limits.handoffs);
  }

  /** The store has granted a run. */
  granted(token: bigint, tokens: number, now: number): void {
    this.#nextToken = token;
    this.#run = Math.min(tokens, this.#limits.handoffs);
    this.#left = this.#run;
    this.#grantedAt = now;
  }

  /** The token for the grant's first holder. */
  firstToken(): bigint {
    this.#left--;
    return this.#nextToken++;
  }

  /** The token for the next local holder; null if the claim must go back to the store instead. `fresh`: is enough of the lease left? */
  handOff(now: number, fresh: boolean): bigint | null {
    const inTime = fresh && now - this.#grantedAt < this.#limits.handoffMs;
    const goesOn = inTime && this.queue.first !== null;
    if (goesOn && this.#left > 0) return this.firstToken();
    // A run spent while others wait and time is left was too short. Doubling, not all at once: tokens must not outrun their clock.
    this.#useful = goesOn ? 2 * this.#run : this.#run - this.#left;
    return null;
  }
}
