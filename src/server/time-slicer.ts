/**
 * Small jobs of which one client could ask for so many that nobody else is served: done at once as long as that takes
 * little time, then a few at a time, and others are served for as long in between.
 */

import type { Clock, Timer } from "../util/clock.ts";
import { RequestError } from "./backend.ts";

/** So long it is at jobs at a time, in milliseconds. */
const SLICE_MS = 5;

interface SlicedJob {
  readonly client: object;
  readonly run: () => void;
}

export class TimeSlicer {
  readonly #clock: Clock;
  readonly #timer: Timer;
  readonly #maxPerClient: number;
  readonly #maxJobs: number;
  readonly #jobs: SlicedJob[] = [];
  /** How many jobs of each wait. */
  readonly #queuedByClient = new Map<object, number>();
  /** Time spent on jobs in this slice, and when the next one begins at the latest. */
  #spentMs = 0;
  #idleUntil = 0;

  /** most: jobs of one client that may wait. */
  constructor(clock: Clock, maxPerClient: number, maxJobs: number) {
    this.#clock = clock;
    this.#timer = clock.timer(() => this.#onTimer());
    this.#maxPerClient = maxPerClient;
    this.#maxJobs = maxJobs;
  }

  /** Does it now or in a while. @throws RequestError LIMIT if too many wait; whatever `work` throws, if it is done now */
  run(client: object, job: () => void): void {
    if (this.#jobs.length === 0 && this.#hasTime()) return this.#runJob(job);
    const queued = this.#queuedByClient.get(client) ?? 0;
    if (queued >= this.#maxPerClient || this.#jobs.length >= this.#maxJobs) {
      throw new RequestError("LIMIT", `at most ${this.#maxPerClient} of these at a time`);
    }
    this.#queuedByClient.set(client, queued + 1);
    this.#jobs.push({ client, run: job });
    this.#timer.set(this.#idleUntil);
  }

  /** Nothing of this client's is done any more. */
  cancel(client: object): void {
    this.#queuedByClient.delete(client);
  }

  #hasTime(): boolean {
    const now = this.#clock.now();
    if (now >= this.#idleUntil) this.#spentMs = 0;
    return this.#spentMs < SLICE_MS;
  }

  #runJob(job: () => void): void {
    const startedAt = this.#clock.now();
    try {
      job();
    } finally {
      const now = this.#clock.now();
      this.#spentMs += now - startedAt;
      this.#idleUntil = now + this.#spentMs;
    }
  }

  #onTimer(): void {
    while (this.#jobs.length > 0 && this.#hasTime()) {
      const { client, run: job } = this.#jobs.shift() as SlicedJob;
      const queued = this.#queuedByClient.get(client);
      if (queued === undefined) continue;
      if (queued > 1) this.#queuedByClient.set(client, queued - 1);
      else this.#queuedByClient.delete(client);
      this.#runJob(job);
    }
    if (this.#jobs.length > 0) this.#timer.set(this.#idleUntil);
  }
}
