/**
 * Runs small jobs without letting one client block all others. Jobs run at once as long as they take little time; then
 * a few at a time, with as much time for other work in between.
 */

import type { Clock, Timer } from "../util/clock.ts";
import { RequestError } from "./backend.ts";

/** How long to run jobs at a stretch, in milliseconds. */
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
  /** The number of queued jobs of each client. */
  readonly #queuedByClient = new Map<object, number>();
  /** The time spent on jobs in this slice, and when the next slice begins at the latest. */
  #spentMs = 0;
  #idleUntil = 0;

  /** maxPerClient: how many jobs of one client may wait. */
  constructor(clock: Clock, maxPerClient: number, maxJobs: number) {
    this.#clock = clock;
    this.#timer = clock.timer(() => this.#onTimer());
    this.#maxPerClient = maxPerClient;
    this.#maxJobs = maxJobs;
  }

  /**
   * Runs the job now or later.
   * @throws RequestError LIMIT if too many jobs wait; any error of the job, if it runs now
   */
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

  /** Drops the queued jobs of this client. */
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
