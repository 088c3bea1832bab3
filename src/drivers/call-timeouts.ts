/** Timeouts of calls to a store. */

import type { Clock, Timer } from "../util/clock.ts";
import { runAfterReading } from "../util/run-after-reading.ts";
import { rejectOnThrow } from "../util/timeout.ts";

/** A timer that fires later than this shows that the process had no time to run, or to read. */
const MAX_TIMER_DELAY_MS = 100;

/** When a call times out, in a list in this order. */
class Deadline {
  readonly dueAt: number;
  readonly onTimeout: () => void;
  previous: Deadline | null = null;
  next: Deadline | null = null;
  isPending = true;

  constructor(dueAt: number, onTimeout: () => void) {
    this.dueAt = dueAt;
    this.onTimeout = onTimeout;
  }
}

/** Times out calls with one timer, which does not keep the process alive: that is for those who wait for a call (see Driver). */
export class CallTimeouts {
  readonly timeoutMs: number;
  readonly #driverName: string;
  readonly #clock: Clock;
  readonly #timer: Timer;
  /**
   * In the order of their deadlines, since all have the same timeout. Not a Set: the old tables of one that changes all the
   * time would keep the calls for long (see SlotMap).
   */
  #first: Deadline | null = null;
  #last: Deadline | null = null;

  /** @param driverName begins the messages */
  constructor(clock: Clock, timeoutMs: number, driverName: string) {
    this.#driverName = driverName;
    this.#clock = clock;
    this.timeoutMs = timeoutMs;
    this.#timer = clock.timer(() => this.#onTimer(clock.now()));
  }

  /**
   * Starts the timeout of a call. Call the result when the call settles: true if in time; false if `onTimeout` was
   * called before. `now`: if the caller has read the clock.
   */
  start(onTimeout: () => void, now: number = this.#clock.now()): () => boolean {
    const pending = new Deadline(now + this.timeoutMs, onTimeout);
    if (this.#last === null) {
      this.#first = pending;
      this.#timer.set(pending.dueAt);
    } else {
      pending.previous = this.#last;
      this.#last.next = pending;
    }
    this.#last = pending;
    return () => {
      const isInTime = this.#remove(pending);
      if (isInTime && this.#first === null) this.#timer.set(null);
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

  /** The same for a call that can be aborted: it is when it fails, and not after its answer, since some clients would close the connection. */
  async call<T>(start: (signal: AbortSignal) => Promise<T>, what: string): Promise<T> {
    const controller = new AbortController();
    try {
      return await this.bound(
        rejectOnThrow(() => start(controller.signal)),
        what,
      );
    } catch (error) {
      controller.abort();
      throw error;
    }
  }

  /** Times out all pending calls at once. */
  expireAll(): void {
    this.#expireDue(Number.POSITIVE_INFINITY);
    this.#timer.stop();
  }

  #onTimer(now: number): void {
    const isLate = this.#first !== null && now - this.#first.dueAt > MAX_TIMER_DELAY_MS;
    // the answers may have come; else their connections would be left as silent
    if (isLate) runAfterReading(() => this.#expireDue(this.#clock.now()));
    else this.#expireDue(now);
  }

  #expireDue(now: number): void {
    for (let pending = this.#first; pending !== null; pending = this.#first) {
      if (pending.dueAt > now) return this.#timer.set(pending.dueAt);
      this.#remove(pending);
      pending.onTimeout();
    }
    this.#timer.set(null);
  }

  /** Returns whether it was pending. */
  #remove(pending: Deadline): boolean {
    if (!pending.isPending) return false;
    const { previous, next } = pending;
    if (previous === null) this.#first = next;
    else previous.next = next;
    if (next === null) this.#last = previous;
    else next.previous = previous;
    pending.isPending = false;
    pending.previous = null;
    pending.next = null;
    return true;
  }
}
