/**
 * Cooperative time slicing: no client delays the others for long, however much it asks for.
 *
 *   TimeSlicer            work beside the locks (lists, histories, event subscribers) takes at most half of the time
 *   JobQueue              small jobs of many clients, under a TimeSlicer
 *   RoundRobinScheduler   connections with much pending input take turns; locks are what the server is for, so no rests
 */

import type { Clock, Timer } from "../util/clock.ts";
import { RequestError } from "./request-error.ts";

/** How long to work at a stretch, in milliseconds. */
const SLICE_MS = 5;

/** Grants time to one kind of work: one slice at a stretch, with as much time for other work in between. */
export class TimeSlicer {
  readonly #clock: Clock;
  /** The time spent in this slice, and when the next slice begins at the latest. */
  #spentMs = 0;
  #idleUntil = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** When hasTime() is true at the latest. */
  get idleUntil(): number {
    return this.#idleUntil;
  }

  hasTime(): boolean {
    if (this.#clock.now() >= this.#idleUntil) this.#spentMs = 0;
    return this.#spentMs < SLICE_MS;
  }

  /** To be called if hasTime(). The work should stop when the clock reaches `endAt`. */
  run<T>(work: (endAt: number) => T): T {
    const startedAt = this.#clock.now();
    try {
      return work(startedAt + SLICE_MS - this.#spentMs);
    } finally {
      const now = this.#clock.now();
      this.#spentMs += now - startedAt;
      this.#idleUntil = now + this.#spentMs;
    }
  }
}

interface QueuedJob {
  readonly client: object;
  readonly run: () => void;
}

export class JobQueue {
  readonly #slicer: TimeSlicer;
  readonly #timer: Timer;
  readonly #maxPerClient: number;
  readonly #maxJobs: number;
  readonly #jobs: QueuedJob[] = [];
  /** The number of queued jobs of each client. */
  readonly #queuedByClient = new Map<object, number>();

  /** maxPerClient: how many jobs of one client may wait. */
  constructor(clock: Clock, maxPerClient: number, maxJobs: number) {
    this.#slicer = new TimeSlicer(clock);
    this.#timer = clock.timer(() => this.#onTimer());
    this.#maxPerClient = maxPerClient;
    this.#maxJobs = maxJobs;
  }

  /**
   * Runs the job now or later.
   * @throws RequestError LIMIT if too many jobs wait; any error of the job, if it runs now
   */
  run(client: object, job: () => void): void {
    if (this.#jobs.length === 0 && this.#slicer.hasTime()) return this.#slicer.run(job);
    const queued = this.#queuedByClient.get(client) ?? 0;
    if (queued >= this.#maxPerClient || this.#jobs.length >= this.#maxJobs) {
      throw new RequestError("LIMIT", `at most ${this.#maxPerClient} of these at a time`);
    }
    this.#queuedByClient.set(client, queued + 1);
    this.#jobs.push({ client, run: job });
    this.#timer.set(this.#slicer.idleUntil);
  }

  /** Drops the queued jobs of this client. */
  cancel(client: object): void {
    this.#queuedByClient.delete(client);
  }

  #onTimer(): void {
    while (this.#jobs.length > 0 && this.#slicer.hasTime()) {
      const { client, run: job } = this.#jobs.shift() as QueuedJob;
      const queued = this.#queuedByClient.get(client);
      if (queued === undefined) continue;
      if (queued > 1) this.#queuedByClient.set(client, queued - 1);
      else this.#queuedByClient.delete(client);
      this.#slicer.run(job);
    }
    if (this.#jobs.length > 0) this.#timer.set(this.#slicer.idleUntil);
  }
}

/** A task that may have more work to do. */
export interface RoundRobinTask {
  /** Works until `deadline` or slightly longer; false: there is more to do. */
  runUntil(deadline: number): boolean;
}

/**
 * Serves connections with much pending input one after another, a little at a time. Input of a connection without a
 * backlog is handled at once; what remains of it is handled here, and between two slices all other connections are read
 * from.
 */
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
    // tasks that had no slice yet come first
    this.#tasks = [...tasks.slice(index), ...this.#tasks];
    if (this.#tasks.length > 0) this.#timer.set(this.#clock.now());
  }
}
