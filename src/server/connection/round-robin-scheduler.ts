/**
 * Serves connections with much pending input in turns, a little at a time, so that none delays the others for long.
 * Input of a connection without a backlog is handled at once; what remains of it is handled here.
 */

import type { Clock, Timer } from "../../util/clock.ts";

/** How long to work at a stretch, in milliseconds, before reading from all other connections. */
const SLICE_MS = 5;

/** A task that may have more work to do. */
export interface RoundRobinTask {
  /** Works until `deadline` or slightly longer; false: there is more to do. */
  runUntil(deadline: number): boolean;
}

export class RoundRobinScheduler {
  readonly #clock: Clock;
  readonly #timer: Timer;
  #tasks: RoundRobinTask[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#timer = clock.timer(() => this.#onTimer());
  }

  /** How long new input may be handled at once: the more tasks wait, the shorter. */
  deadlineFor(now: number): number {
    return now + SLICE_MS / (1 + this.#tasks.length);
  }

  /** Adds the task at the end of the queue. */
  add(task: RoundRobinTask): void {
    this.#tasks.push(task);
    this.#timer.set(this.#clock.now());
  }

  /** Stops all tasks. */
  stop(): void {
    this.#timer.stop();
    this.#tasks = [];
  }

  #onTimer(): void {
    const startedAt = this.#clock.now();
    const tasks = this.#tasks;
    this.#tasks = [];
    const sliceMs = SLICE_MS / tasks.length;
    let index = 0;
    for (; index < tasks.length && this.#clock.now() < startedAt + SLICE_MS; index++) {
      const task = tasks[index] as RoundRobinTask;
      if (!task.runUntil(this.#clock.now() + sliceMs)) this.#tasks.push(task);
    }
    // tasks that had no turn yet come first
    this.#tasks = [...tasks.slice(index), ...this.#tasks];
    if (this.#tasks.length > 0) this.#timer.set(this.#clock.now());
  }
}
