/**
 * The order in which `claim` calls ask the pool for a connection.
 *
 * Invariants
 * - At most MAX_ASKING of them have asked and have no connection, without those that were given up. So no other call waits behind more.
 * - While one is queued here, MAX_ASKING others have asked: no connection of the pool is idle for lack of calls.
 */

import { runInMicrotask } from "../../util/microtask.ts";

/**
 * As few as possible, since a renewal waits for their statements, too. With one, a pool would open its connections one after
 * another.
 */
const MAX_ASKING = 2;

export class ClaimCallQueue {
  /** Start those that have not asked yet, in order. */
  readonly #queued = new Set<() => void>();
  #askingCount = 0;
  #isStartScheduled = false;

  /**
   * Calls `start` when the call may ask for a connection, perhaps now. Call the result once, when it has one or is given up.
   */
  enqueue(start: () => void): () => void {
    this.#queued.add(start);
    this.#startNext();
    return () => {
      if (!this.#queued.delete(start)) this.#askingCount--;
      this.#startLater();
    };
  }

  /** Calls of one turn time out together: none of them may start because another one has left. */
  #startLater(): void {
    if (this.#isStartScheduled || this.#queued.size === 0) return;
    this.#isStartScheduled = true;
    runInMicrotask(() => {
      this.#isStartScheduled = false;
      this.#startNext();
    });
  }

  #startNext(): void {
    for (const start of this.#queued) {
      if (this.#askingCount >= MAX_ASKING) return;
      this.#queued.delete(start);
      this.#askingCount++;
      start();
    }
  }
}
