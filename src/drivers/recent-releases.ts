/**
 * The claims that a client has released a short time ago. A store that has one of them again has lost its release: a standby without the
 * last writes was promoted. Such a claim may be released once more (decisions 0047 and 0050).
 *
 * Invariant: a claim is in here only after the store has confirmed its release to this client, and no call for it was made since. So
 * nothing is released that anybody uses: neither a claim that another process has taken over, nor one of this client's whose call was not answered.
 */

import type { ClaimId } from "../spi/driver.ts";

/** Between this many and twice as many are kept: the releases of a second or two. */
const MAX_GENERATION = 20_000;

export class RecentReleases {
  #current = new Set<ClaimId>();
  #previous = new Set<ClaimId>();

  add(id: ClaimId): void {
    if (this.#current.size === MAX_GENERATION) {
      this.#previous = this.#current;
      this.#current = new Set();
    }
    this.#current.add(id);
  }

  /** A call for it is made. */
  delete(id: ClaimId): void {
    this.#current.delete(id);
    this.#previous.delete(id);
  }

  has(id: ClaimId): boolean {
    return this.#current.has(id) || this.#previous.has(id);
  }
}
