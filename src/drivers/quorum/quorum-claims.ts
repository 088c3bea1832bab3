/**
 * The quorum claims of one client by id. A claim that the client no longer asks about is dropped when its lease ended
 * long ago.
 */

import type { Claim, ClaimId } from "../../spi/driver.ts";
import { QuorumClaim } from "./quorum-claim.ts";

const SWEEP_INTERVAL = 1_024;

export class QuorumClaims {
  readonly #members: number;
  readonly #byId = new Map<ClaimId, QuorumClaim>();
  #createdCount = 0;

  constructor(members: number) {
    this.#members = members;
  }

  get(id: ClaimId): QuorumClaim | undefined {
    return this.#byId.get(id);
  }

  /** The quorum claim of this claim; a new one, with unknown entries, if another client made it. */
  getOrCreate(claim: Claim, now: number): QuorumClaim {
    let quorumClaim = this.#byId.get(claim.id);
    if (quorumClaim === undefined || isStale(quorumClaim, now)) {
      if (quorumClaim !== undefined) quorumClaim.isDone = true;
      if (++this.#createdCount % SWEEP_INTERVAL === 0) this.#sweep(now);
      quorumClaim = new QuorumClaim(claim, this.#members);
      this.#byId.set(claim.id, quorumClaim);
    }
    quorumClaim.lastUsedAt = now;
    return quorumClaim;
  }

  /** Removes the claim and marks it done. */
  remove(claim: Claim): QuorumClaim {
    const quorumClaim = this.#byId.get(claim.id) ?? new QuorumClaim(claim, this.#members);
    this.#byId.delete(claim.id);
    quorumClaim.isDone = true;
    return quorumClaim;
  }

  #sweep(now: number): void {
    for (const [id, quorumClaim] of this.#byId) {
      if (!isStale(quorumClaim, now)) continue;
      quorumClaim.isDone = true;
      this.#byId.delete(id);
    }
  }
}

function isStale({ activeCalls, lastUsedAt, ttlMs }: QuorumClaim, now: number): boolean {
  return activeCalls === 0 && lastUsedAt + 2 * ttlMs < now;
}
