/** How long calls are waited for. */

interface PendingCall {
  readonly dueAt: number;
  readonly onTimeout: () => void;
}

/** Gives up on calls that take too long. Its one timer keeps the process alive as long as a call is under way: the connections do not. */
export class CallTimeouts {
  readonly #timeoutMs: number;
  /** In the order in which they are given up on, all having the same patience. */
  readonly #pending = new Set<PendingCall>();
  #timer: NodeJS.Timeout | null = null;

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
  }

  /** A call begins. Call what is given back when it is settled: was that in time? Else `onTimeout` was called. */
  start(onTimeout: () => void): () => boolean {
    const pending: PendingCall = { dueAt: performance.now() + this.#timeoutMs, onTimeout };
    if (this.#timer === null) this.#timer = setTimeout(() => this.#sweep(), this.#timeoutMs);
    else if (this.#pending.size === 0) this.#timer.ref();
    this.#pending.add(pending);
    return () => {
      const isInTime = this.#pending.delete(pending);
      if (isInTime && this.#pending.size === 0) this.#timer?.unref();
      return isInTime;
    };
  }

  /** @throws Error if it takes longer than a call may */
  bound<T>(work: Promise<T>, what: string): Promise<T> {
    return new Promise((resolve, reject) => {
      const stop = this.start(() => reject(new Error(`redis: no ${what} within ${this.#timeoutMs} ms`)));
      work.then(resolve, reject).finally(stop);
    });
  }

  /** Gives up on all. */
  expireAll(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    for (const { onTimeout } of this.#pending) onTimeout();
    this.#pending.clear();
  }

  #sweep(): void {
    this.#timer = null;
    const now = performance.now();
    for (const pending of this.#pending) {
      if (pending.dueAt > now) {
        this.#timer = setTimeout(() => this.#sweep(), pending.dueAt - now);
        return;
      }
      this.#pending.delete(pending);
      pending.onTimeout();
    }
  }
}
