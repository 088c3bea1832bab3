/** Time that stands still until a test advances it, and the timers that wait for it. */

import { MessageChannel } from "node:worker_threads";
import type { Timer } from "../util/clock.ts";

interface PendingTimer {
  readonly due: number;
  readonly run: () => void;
}

export class ManualTime {
  /** Milliseconds. Setting it lets time pass without firing a timer. */
  now: number;
  readonly #timers = new Map<Timer, PendingTimer>();

  constructor(start = 0) {
    this.now = start;
  }

  timer(run: () => void): Timer {
    const timer: Timer = {
      set: (due) => {
        if (due === null) this.#timers.delete(timer);
        else this.#timers.set(timer, { due, run });
      },
      keepAlive: () => undefined,
      stop: () => timer.set(null),
    };
    return timer;
  }

  /** How many timers have a due time. */
  get pendingTimers(): number {
    return this.#timers.size;
  }

  /** Lets time pass from one due timer to the next; `settle` waits, at first and after each, for what follows from it. */
  async advance(ms: number, settle: () => Promise<void>): Promise<void> {
    const end = this.now + ms;
    await settle();
    for (let timer = this.#findDue(end); timer !== null; timer = this.#findDue(end)) {
      const { due, run } = this.#timers.get(timer) as PendingTimer;
      this.#timers.delete(timer);
      this.now = Math.max(this.now, due);
      run();
      await settle();
    }
    this.now = Math.max(this.now, end);
  }

  /** The timer that fires first, of those due until `end`; the oldest of several. */
  #findDue(end: number): Timer | null {
    let first: Timer | null = null;
    let firstDue = Number.POSITIVE_INFINITY;
    for (const [timer, { due }] of this.#timers) {
      if (due <= end && due < firstDue) [first, firstDue] = [timer, due];
    }
    return first;
  }
}

/** Waits until all promise reactions have run. By a message, since test runners replace setImmediate() and the like. */
export function settlePromises(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.once("message", () => {
      port1.close();
      resolve();
    });
    port2.postMessage(null);
  });
}
