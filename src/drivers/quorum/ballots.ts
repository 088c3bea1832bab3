/** The ballots of one client by claim. One that the core asks no more about goes when its lease is long over. */

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
    let ballot = this.#byId.get(claim.id);
    if (ballot === undefined || isStale(ballot, now)) {
      if (ballot !== undefined) ballot.over = true;
      if (++this.#made % SWEEP_EACH === 0) this.#sweep(now);
      ballot = new Ballot(claim, this.#members);
      this.#byId.set(claim.id, ballot);
    }
    ballot.askedAt = now;
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
    for (const [id, ballot] of this.#byId) {
      if (!isStale(ballot, now)) continue;
      ballot.over = true;
      this.#byId.delete(id);
    }
  }
}

function isStale({ verbs, askedAt, ttlMs }: Ballot, now: number): boolean {
  return verbs === 0 && askedAt + 2 * ttlMs < now;
}
