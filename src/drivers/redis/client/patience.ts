/** How long calls are waited for. */

interface Pending {
  readonly givenUpAt: number;
  readonly giveUp: () => void;
}

/** Gives up on calls that take too long. Its one timer keeps the process alive as long as a call is under way: the connections do not. */
export class Patience {
  readonly #ms: number;
  /** In the order in which they are given up on, all having the same patience. */
  readonly #pending = new Set<Pending>();
  #timer: NodeJS.Timeout | null = null;

  constructor(ms: number) {
    this.#ms = ms;
  }

  /** A call begins. Call what is given back when it is settled: was that in time? Else `giveUp` was called. */
  begin(giveUp: () => void): () => boolean {
    const pending: Pending = { givenUpAt: performance.now() + this.#ms, giveUp };
    if (this.#timer === null) this.#timer = setTimeout(() => this.#sweep(), this.#ms);
    else if (this.#pending.size === 0) this.#timer.ref();
    this.#pending.add(pending);
    return () => {
      const isInTime = this.#pending.delete(pending);
      if (isInTime && this.#pending.size === 0) this.#timer?.unref();
      return isInTime;
    };
  }

  /** @throws Error if it takes longer than a call may */
  within<T>(work: Promise<T>, what: string): Promise<T> {
    return new Promise((resolve, reject) => {
      const settled = this.begin(() => reject(new Error(`redis: no ${what} within ${this.#ms} ms`)));
      work.then(resolve, reject).finally(settled);
    });
  }

  /** Gives up on all. */
  end(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    for (const { giveUp } of this.#pending) giveUp();
    this.#pending.clear();
  }

  #sweep(): void {
    this.#timer = null;
    const now = performance.now();
    for (const pending of this.#pending) {
      if (pending.givenUpAt > now) {
        this.#timer = setTimeout(() => this.#sweep(), pending.givenUpAt - now);
        return;
      }
      this.#pending.delete(pending);
      pending.giveUp();
    }
  }
}
