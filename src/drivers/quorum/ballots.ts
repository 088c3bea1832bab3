/** The ballots of one client by claim. What the core has forgotten without a release goes when its lease is long over. */

import type { Claim, ClaimId } from "../../spi/driver.ts";
import { Ballot } from "./ballot.ts";

const SWEEP_EACH = 1_024;

export class Ballots {
  readonly #members: number;
  readonly #byId = new Map<ClaimId, Ballot>();
  #made = 0;

  constructor(members: number) {
    this.#members = members;
  }

  get(id: ClaimId): Ballot | undefined {
    return this.#byId.get(id);
  }

  /** The claim's ballot; one of which nothing is known if another client made it. */
  of(claim: Claim, now: number): Ballot {
    const known = this.#byId.get(claim.id);
    if (known !== undefined) return known;
    if (++this.#made % SWEEP_EACH === 0) this.#sweep(now);
    const ballot = new Ballot(claim, this.#members);
    this.#byId.set(claim.id, ballot);
    return ballot;
  }

  /** It is over from now on. */
  take(claim: Claim): Ballot {
    const ballot = this.#byId.get(claim.id) ?? new Ballot(claim, this.#members);
    this.#byId.delete(claim.id);
    ballot.over = true;
    return ballot;
  }

  #sweep(now: number): void {
    for (const [id, { votes, ttlMs, verbs }] of this.#byId) {
      if (verbs === 0 && votes.every(({ endsAt }) => endsAt + ttlMs < now)) this.#byId.delete(id);
    }
  }
}
