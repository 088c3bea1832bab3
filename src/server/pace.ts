/**
 * Small jobs of which one client could ask for so many that nobody else is served: done at once as long as that takes
 * little time, then a few at a time, and others are served for as long in between.
 */

import type { Clock, Timer } from "../clock.ts";
import { Refusal } from "./backend.ts";

/** So long it is at jobs at a time, in milliseconds. */
const SLICE_MS = 5;

interface Job {
  readonly of: object;
  readonly work: () => void;
}

export class Pace {
  readonly #clock: Clock;
  readonly #timer: Timer;
  readonly #most: number;
  readonly #mostInAll: number;
  readonly #jobs: Job[] = [];
  /** How many jobs of each wait. */
  readonly #waiting = new Map<object, number>();
  /** Time spent on jobs in this slice, and when the next one begins at the latest. */
  #spentMs = 0;
  #restUntil = 0;

  /** most: jobs of one client that may wait. */
  constructor(clock: Clock, most: number, mostInAll: number) {
    this.#clock = clock;
    this.#timer = clock.timer(() => this.#tick());
    this.#most = most;
    this.#mostInAll = mostInAll;
  }

  /** Does it now or in a while. @throws Refusal LIMIT if too many wait; whatever `work` throws, if it is done now */
  run(of: object, work: () => void): void {
    if (this.#jobs.length === 0 && this.#mayWork()) return this.#do(work);
    const mine = this.#waiting.get(of) ?? 0;
    if (mine >= this.#most || this.#jobs.length >= this.#mostInAll) {
      throw new Refusal("LIMIT", `at most ${this.#most} of these at a time`);
    }
    this.#waiting.set(of, mine + 1);
    this.#jobs.push({ of, work });
    this.#timer.set(this.#restUntil);
  }

  /** Nothing of this client's is done any more. */
  left(of: object): void {
    this.#waiting.delete(of);
  }

  #mayWork(): boolean {
    const now = this.#clock.now();
    if (now >= this.#restUntil) this.#spentMs = 0;
    return this.#spentMs < SLICE_MS;
  }

  #do(work: () => void): void {
    const began = this.#clock.now();
    try {
      work();
    } finally {
      const now = this.#clock.now();
      this.#spentMs += now - began;
      this.#restUntil = now + this.#spentMs;
    }
  }

  #tick(): void {
    while (this.#jobs.length > 0 && this.#mayWork()) {
      const { of, work } = this.#jobs.shift() as Job;
      const mine = this.#waiting.get(of);
      if (mine === undefined) continue;
      if (mine > 1) this.#waiting.set(of, mine - 1);
      else this.#waiting.delete(of);
      this.#do(work);
    }
    if (this.#jobs.length > 0) this.#timer.set(this.#restUntil);
  }
}
