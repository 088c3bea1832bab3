// The imported setImmediate(): test runners replace the global one, and hand-offs would wait for a turn that never comes.
import { setImmediate } from "node:timers";

/**
 * When the promise of a request resolves to which the lock was handed off within this process, or which uses a cached lock. The
 * lock is granted at once in each case.
 *
 *   now       other requests wait behind it
 *   later     three microtasks later: no request waits. The code that released the lock may request it again in its next
 *             microtask; if the new holder released it before that, the client would release the claim to the store
 *   nextTurn  in the next turn of the event loop: hand-offs between holders that only compute follow each other in microtasks.
 *             Meanwhile no recall, answer or timer is seen, so the chain of them lasts MAX_CHAIN_MS at most
 */
export type HandoffTiming = "now" | "later" | "nextTurn";

const MAX_CHAIN_MS = 1;

/** The hand-offs and uses of cached locks of one turn of the event loop, in all local queues of a client. */
export class HandoffChain {
  /** When the first one of this turn of the event loop took place; null: there was none. */
  #chainStartedAt: number | null = null;

  /** @param isLast no other request waits */
  chooseTiming(now: number, isLast: boolean): HandoffTiming {
    if (this.#chainStartedAt === null) {
      this.#chainStartedAt = now;
      setImmediate(() => {
        this.#chainStartedAt = null;
      });
    }
    if (now - this.#chainStartedAt >= MAX_CHAIN_MS) return "nextTurn";
    return isLast ? "later" : "now";
  }
}

/** What to resolve a promise with so that it has the value at this time. */
export function resolveAt<T>(value: T, timing: HandoffTiming): T | Promise<T> {
  return timing === "now" ? value : delay(value, timing);
}

async function delay<T>(value: T, timing: HandoffTiming): Promise<T> {
  if (timing === "nextTurn") await new Promise((resolve) => setImmediate(resolve));
  else for (let microtask = 0; microtask < 3; microtask++) await Promise.resolve();
  return value;
}
