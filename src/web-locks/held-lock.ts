/** A lock that a callback holds: it may be stolen, or lost. */

import type { Lock } from "../client/lock.ts";
import { formatKeys } from "../errors.ts";
import type { WebLock, WebLockMode } from "./types.ts";

export class HeldLock {
  /** What the callback receives. */
  readonly webLock: WebLock;
  /** Rejects with an AbortError if the lock is stolen or lost. */
  readonly loss: Promise<never>;
  readonly #lock: Lock;
  readonly #controller = new AbortController();
  #isReleasing = false;

  constructor(name: string, mode: WebLockMode, lock: Lock) {
    this.#lock = lock;
    const { signal } = this.#controller;
    this.webLock = {
      name,
      mode,
      get signal() {
        // reading the signal of the lock compares the clocks with the lease: a process that was stopped learns of its loss here
        void lock.signal;
        return signal;
      },
      get token() {
        return lock.token;
      },
    };
    this.loss = new Promise((_resolve, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    });
    this.loss.catch(() => undefined); // it may be lost before anyone waits for it
    lock.signal.addEventListener("abort", () => this.#lose("lost", lock.signal.reason), { once: true });
    if (lock.signal.aborted) this.#lose("lost", lock.signal.reason);
  }

  get token(): bigint {
    return this.#lock.token;
  }

  /** Releases the lock although its callback is still running. */
  steal(): void {
    if (this.#isReleasing) return;
    this.#lose("stolen");
    void this.#lock.release();
  }

  /** Releases the lock, when its callback has settled. @throws DOMException AbortError if it had been lost */
  async release(): Promise<void> {
    this.#isReleasing = true;
    if (!(await this.#lock.release())) throw this.#lose("lost");
  }

  #lose(how: "stolen" | "lost", cause?: unknown): DOMException {
    const { signal } = this.#controller;
    if (!signal.aborted) this.#controller.abort(createLossError(this.webLock.name, how, cause));
    return signal.reason as DOMException;
  }
}

export function createLossError(name: string, how: "stolen" | "lost", cause?: unknown): DOMException {
  const message = `the lock ${formatKeys([name])} was ${how}`;
  return new DOMException(message, { name: "AbortError", ...(cause !== undefined && { cause }) });
}
