/**
 * Connections that have said more than can be done at once, each served a little at a time: however much one says, nobody
 * else waits for long. Whoever says something while nothing of it is left to do is served at once; what is left of it then
 * takes its turn here.
 */

import type { Clock, Timer } from "../clock.ts";

/** So long work is done at a time, in milliseconds; then all others are read from. */
const SLICE_MS = 5;

/** Something with more to do. */
export interface Worker {
  /** Goes on until `until`, or a little longer; false: there is more. */
  work(until: number): boolean;
}

export class Turns {
  readonly #clock: Clock;
  readonly #timer: Timer;
  #waiting: Worker[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#timer = clock.timer(() => this.#tick());
  }

  /** Until when what comes now may be worked at: the more wait already, the shorter. */
  until(now: number): number {
    return now + SLICE_MS / (1 + this.#waiting.length);
  }

  /** It takes its turn behind all that wait. */
  add(worker: Worker): void {
    this.#waiting.push(worker);
    this.#timer.set(this.#clock.now());
  }

  /** Nothing is gone on with. */
  stop(): void {
    this.#timer.stop();
    this.#waiting = [];
  }

  #tick(): void {
    const began = this.#clock.now();
    const turn = this.#waiting;
    this.#waiting = [];
    const each = SLICE_MS / turn.length;
    let at = 0;
    for (; at < turn.length && this.#clock.now() < began + SLICE_MS; at++) {
      const worker = turn[at] as Worker;
      if (!worker.work(this.#clock.now() + each)) this.#waiting.push(worker);
    }
    // who had no turn yet comes first
    this.#waiting = [...turn.slice(at), ...this.#waiting];
    if (this.#waiting.length > 0) this.#timer.set(this.#clock.now());
  }
}
