/**
 * The claims of requests that their signals may still abort in the turn in which they were made: they start at its end,
 * or before the next claim that does not wait for that, so that all start in the order of their requests. Nothing is
 * sent for a request that is gone by then.
 */

import { runInMicrotask } from "../util/microtask.ts";

export class DeferredStarts {
  #starts: (() => void)[] = [];

  add(start: () => void): void {
    if (this.#starts.push(start) === 1) runInMicrotask(() => this.flush());
  }

  flush(): void {
    if (this.#starts.length === 0) return;
    const starts = this.#starts;
    this.#starts = [];
    for (const start of starts) start();
  }
}
