/** Timeouts of calls to a store. */

import type { Clock, Timer } from "../util/clock.ts";

interface PendingCall {
  readonly dueAt: number;
  readonly onTimeout: () => void;
}

/** Times out calls with one timer, which keeps the process alive while a call is pending: the connections do not. */
export class CallTimeouts {
  readonly timeoutMs: number;
  readonly #driverName: string;
  readonly #clock: Clock;
  readonly #timer: Timer;
  /** In the order of their deadlines, since all have the same timeout. */
  readonly #pending = new Set<PendingCall>();

  /** @param driverName begins the messages */
  constructor(clock: Clock, timeoutMs: number, driverName: string) {
    this.#driverName = driverName;
    this.#clock = clock;
    this.timeoutMs = timeoutMs;
    this.#timer = clock.timer(() => this.#expireDue(clock.now()));
  }

  /**
   * Starts the timeout of a call. Call the result when the call settles: true if in time; false if `onTimeout` was
   * called before.
   */
  start(onTimeout: () => void): () => boolean {
    const pending: PendingCall = { dueAt: this.#clock.now() + this.timeoutMs, onTimeout };
    if (this.#pending.size === 0) {
      this.#timer.set(pending.dueAt);
      this.#timer.keepAlive(true);
    }
    this.#pending.add(pending);
    return () => {
      const isInTime = this.#pending.delete(pending);
      if (isInTime && this.#pending.size === 0) this.#stopTimer();
      return isInTime;
    };
  }

  /** @throws Error when the work takes longer than a call may */
  bound<T>(work: Promise<T>, what: string): Promise<T> {
    return new Promise((resolve, reject) => {
      const stop = this.start(() => reject(new Error(`${this.#driverName}: no ${what} within ${this.timeoutMs} ms`)));
      work.then(resolve, reject).finally(stop);
    });
  }

  /** Times out all pending calls at once. */
  expireAll(): void {
    this.#expireDue(Number.POSITIVE_INFINITY);
    this.#timer.stop();
  }

  #expireDue(now: number): void {
    for (const pending of this.#pending) {
      if (pending.dueAt > now) return this.#timer.set(pending.dueAt);
      this.#pending.delete(pending);
      pending.onTimeout();
    }
    if (this.#pending.size === 0) this.#stopTimer();
  }

  #stopTimer(): void {
    this.#timer.set(null);
    this.#timer.keepAlive(false);
  }
}
