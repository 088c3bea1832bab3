/**
 * Connections that have said more than can be done at once, each served a little at a time: however much one says, nobody
 * else waits for long. Whoever says something while nothing of it is left to do is served at once; what is left of it then
 * takes its turn here.
 */

import type { Clock, Timer } from "../../util/clock.ts";

/** So long work is done at a time, in milliseconds; then all others are read from. */
const SLICE_MS = 5;

/** Something with more to do. */
export interface RoundRobinTask {
  /** Goes on until `until`, or a little longer; false: there is more. */
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

  /** Until when what comes now may be worked at: the more wait already, the shorter. */
  deadlineFor(now: number): number {
    return now + SLICE_MS / (1 + this.#tasks.length);
  }

  /** It takes its turn behind all that wait. */
  add(task: RoundRobinTask): void {
    this.#tasks.push(task);
    this.#timer.set(this.#clock.now());
  }

  /** Nothing is gone on with. */
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
    // who had no turn yet comes first
    this.#tasks = [...tasks.slice(index), ...this.#tasks];
    if (this.#tasks.length > 0) this.#timer.set(this.#clock.now());
  }
}
