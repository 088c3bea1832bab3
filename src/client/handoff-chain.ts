// The imported setImmediate(): test runners replace the global one, and hand-offs would wait for a turn that never
// comes.
import { setImmediate } from "node:timers";

const MAX_CHAIN_MS = 1;

/**
 * When the requests resolve that get a lock by a hand-off within this process, or use a cached lock. The lock is theirs
 * at once in each case. Hand-offs between holders that only compute follow each other in microtasks: no recall, answer
 * or timer is seen meanwhile, so after MAX_CHAIN_MS the next one waits for the next turn of the event loop. One object
 * for all local queues of a client.
 */
export class HandoffChain {
  /** When the first one of this turn of the event loop took place; null: there was none. */
  #startedAt: number | null = null;

  /**
   * What a request that has got the lock waits for before it resolves; null: nothing.
   * @param isLast no other request waits: if the new holder released the lock before the code that has just released it
   * could request it again, the client would release the claim to the store
   */
  delay(now: number, isLast: boolean): Promise<void> | null {
    if (this.#startedAt === null) {
      this.#startedAt = now;
      setImmediate(() => {
        this.#startedAt = null;
      });
    }
    if (now - this.#startedAt >= MAX_CHAIN_MS) return new Promise((resolve) => setImmediate(resolve));
    return isLast ? threeMicrotasks() : null;
  }
}

/**
 * As long as it takes until the code that has released the lock goes on: one microtask if it awaits release() itself,
 * three if an async function in between returns that promise. The new holder's own await comes on top, so its release
 * is the later one.
 */
async function threeMicrotasks(): Promise<void> {
  for (let microtask = 0; microtask < 3; microtask++) await Promise.resolve();
}
