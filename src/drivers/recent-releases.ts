/**
 * The claims that a client has released a short time ago. A store that has one of them again has lost its release: a standby without the
 * last writes was promoted. Such a claim may be released once more (decisions 0047 and 0050).
 *
 * Invariant: has() is true only for a claim whose release the store has confirmed to this client, and for which this client has made no
 * call since it sent that release. So nothing is released that anybody uses: neither a claim that another process has taken over, nor one of this
 * client's whose call was not answered, nor one that a majority claims again under the same id while the release is under way.
 */

import type { ClaimId } from "../spi/driver.ts";

/** Between this many and twice as many are kept: the releases of a second or two. */
const MAX_GENERATION = 20_000;

export class RecentReleases {
  /** By id: whether the store has confirmed the release. */
  #current = new Map<ClaimId, boolean>();
  #previous = new Map<ClaimId, boolean>();

  /** A release is about to be sent. */
  onRelease(id: ClaimId): void {
    if (this.#current.size === MAX_GENERATION) {
      this.#previous = this.#current;
      this.#current = new Map();
    }
    this.#current.set(id, false);
  }

  /** The store has confirmed the release. */
  onReleased(id: ClaimId): void {
    for (const generation of [this.#current, this.#previous]) if (generation.has(id)) generation.set(id, true);
  }

  /** A `claim` call is about to be sent: a majority may claim a released id again. */
  onClaim(id: ClaimId): void {
    this.#current.delete(id);
    this.#previous.delete(id);
  }

  has(id: ClaimId): boolean {
    return this.#current.get(id) === true || this.#previous.get(id) === true;
  }
}
