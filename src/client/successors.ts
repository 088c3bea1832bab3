/**
 * The claims of this client that wait at the store directly behind a granted one. In strict order each request has a claim of its own;
 * where the next ones in the queue are of one process, it hands the lock on to them in that order without asking the store, under the
 * claim that holds the lock, and withdraws the claim of each. (Lock cohorting hands locks on within a part of a machine in the same way:
 * Dice, Marathe and Shavit, 2012. It skips waiters of other parts; this does not.)
 *
 * Invariants
 * - A successor takes the lock only while its own claim waits. One that the store has granted meanwhile shows that the first claim is
 *   gone; one that has timed out or was aborted is skipped, as the store would skip it.
 * - No claim arrives between those of the list, since claims enter a queue at its end. One whose client was disconnected when the store
 *   made the list may get its earlier place back since: the grant has passed it by, and so does the rest of the list.
 * - The token of a successor is a function of its place, so tokens rise with every holder, also if one is skipped.
 */

import type { ClaimState } from "../claim/state.ts";
import type { ClaimId } from "../spi/driver.ts";

/** What is read of a claim that the engine runs. */
interface RunningClaim {
  readonly claim: { readonly label: string };
  readonly state: ClaimState;
}

export class Successors {
  /** The first token of the grant that named them. */
  readonly #firstToken: bigint;
  readonly #ids: readonly ClaimId[];
  #takenCount = 0;

  constructor(firstToken: bigint, ids: readonly ClaimId[]) {
    this.#firstToken = firstToken;
    this.#ids = ids;
  }

  /**
   * Takes the next one off the list and returns it with its token; null: the claim must be released to the store.
   * @param find returns the live claim of this client with this id
   */
  takeNext<T extends RunningClaim>(
    { claim, state }: RunningClaim,
    find: (id: ClaimId) => T | undefined,
  ): { readonly successor: T; readonly token: bigint } | null {
    // another token: the grant that named them was not the one that counts
    if (state.status !== "held" || state.token !== this.#firstToken) return null;
    while (this.#takenCount < this.#ids.length) {
      const successor = find(this.#ids[this.#takenCount++] as ClaimId);
      if (this.#takenCount >= state.tokenCount) return null;
      if (successor === undefined) continue;
      const { status } = successor.state;
      const isPending = status === "asking" || status === "waiting";
      // lists show the label of the claim that holds the lock
      if (!isPending || successor.claim.label !== claim.label) return null;
      return { successor, token: this.#firstToken + BigInt(this.#takenCount) };
    }
    return null;
  }
}
