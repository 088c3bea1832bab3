/**
 * The client's one timer, and the tasks that wait for it. Runs no task by itself: the engine does when the timer fires.
 */

import type { Clock, Timer } from "../util/clock.ts";
import type { HeapItem } from "../util/deadline-heap.ts";
import { DeadlineHeap } from "../util/deadline-heap.ts";
import type { TimerClock } from "../util/timeout.ts";
import { rejectOnThrow, withTimeout } from "../util/timeout.ts";

/** Which tasks may run early, to share a batch with others. */
export interface EarlyRun {
  /** Those due within this time, in milliseconds, */
  readonly withinMs: number;
  /** and within this part of their own lease. */
  readonly leaseShare: number;
}

/** A task with a due time. */
export interface ScheduledTask extends HeapItem {
  readonly mayRunEarly: boolean;
  /** `early`: it is not due yet, but may be within what `early` allows. */
  onDue(now: number, early?: EarlyRun): void;
}

export class Scheduler implements TimerClock {
  readonly #clock: Clock;
  readonly #tasks = new DeadlineHeap<ScheduledTask>();
  readonly #timer: Timer;
  /**
   * Live claims, recent releases, and other work that code waits for: while there are any, the timer keeps the process
   * alive.
   */
  #refs = 0;

  constructor(clock: Clock, onTimer: () => void) {
    this.#clock = clock;
    this.#timer = clock.timer(onTimer);
  }

  now(): number {
    return this.#clock.now();
  }

  /** Like Clock.timer(), but all these timers share one of the clock. None keeps the process alive. */
  timer(run: () => void): Timer {
    const task: ScheduledTask = { mayRunEarly: false, dueAt: 0, heapIndex: -1, onDue: run };
    return {
      set: (due) => {
        if (due === null) return this.cancel(task);
        this.#tasks.set(task, due);
        this.arm();
      },
      keepAlive: () => undefined,
      stop: () => this.cancel(task),
    };
  }

  /** Schedules the task, or moves it to another time. */
  schedule(task: ScheduledTask, dueAt: number): void {
    // rounded up to milliseconds like timers: tasks scheduled in one turn then become due together
    this.#tasks.set(task, Math.ceil(dueAt));
    this.arm();
  }

  /** Leaves the timer as it is: a call that finds nothing due costs less than setting it for every request. */
  cancel(task: ScheduledTask): void {
    this.#tasks.remove(task);
  }

  /** Sets the timer for the first task. */
  arm(): void {
    this.#timer.set(this.#tasks.nextDueAt());
  }

  /** Keeps the process alive until unref() has been called as often. */
  ref(): void {
    this.#refs++;
    this.#timer.keepAlive(true);
  }

  unref(): void {
    this.#refs--;
    if (this.#refs === 0) this.#timer.keepAlive(false);
  }

  /** Settles like `work`, or with `onTimeout()` if it takes longer. Keeps the process alive meanwhile. */
  waitFor<T>(work: Promise<T>, timeoutMs: number, onTimeout: () => T | Promise<T>): Promise<T> {
    this.ref();
    return withTimeout(this, timeoutMs, work, onTimeout).finally(() => this.unref());
  }

  /**
   * Settles like the call to the store, or rejects if it takes longer than timeoutMs. Keeps the process alive
   * meanwhile.
   */
  waitForCall<T>(timeoutMs: number, call: () => Promise<T>): Promise<T> {
    return this.waitFor(rejectOnThrow(call), timeoutMs, () =>
      Promise.reject(new Error("the store did not answer in time")),
    );
  }

  runDue(now: number): void {
    for (const task of this.#tasks.takeAllDue(now)) task.onDue(now);
  }

  /** Runs early those of the next `max` tasks that may. */
  runEarly(now: number, early: EarlyRun, max: number): void {
    for (const task of this.#tasks.takeAllDue(now + early.withinMs, max)) {
      if (task.mayRunEarly) task.onDue(now, early);
      else this.#tasks.set(task, task.dueAt);
    }
  }

  /** Runs all tasks and stops the timer. */
  stop(): void {
    for (const task of this.#tasks.takeAllDue(Number.POSITIVE_INFINITY)) task.onDue(this.now());
    this.#timer.keepAlive(false);
    this.#timer.stop();
  }
}
