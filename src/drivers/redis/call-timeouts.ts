/** Timeouts of calls. */

interface PendingCall {
  readonly dueAt: number;
  readonly onTimeout: () => void;
}

/** Times out calls with one timer, which keeps the process alive while a call is pending: the connections do not. */
export class CallTimeouts {
  readonly #timeoutMs: number;
  /** In the order of their deadlines, since all have the same timeout. */
  readonly #pending = new Set<PendingCall>();
  #timer: NodeJS.Timeout | null = null;

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
  }

  /**
   * Starts the timeout of a call. Call the result when the call settles: true if in time; false if `onTimeout` was
   * called before.
   */
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

  /** @throws Error when the work takes longer than a call may */
  bound<T>(work: Promise<T>, what: string): Promise<T> {
    return new Promise((resolve, reject) => {
      const stop = this.start(() => reject(new Error(`redis: no ${what} within ${this.#timeoutMs} ms`)));
      work.then(resolve, reject).finally(stop);
    });
  }

  /** Times out all pending calls at once. */
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
