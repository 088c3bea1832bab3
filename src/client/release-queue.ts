/**
 * Sends each release until it is answered, or until the store has certainly dropped the claim: one ttl after the claim's last
 * `claim` or `renew` call was sent. A session claim is not dropped while its session lives: after that time its callback
 * receives null (unknown), and the release is still repeated.
 *
 * Invariant: "did not exist" counts only as the answer to a release that was sent once. A repeated release finds no claim
 * if the first one succeeded and only its answer was lost.
 */

import { isFatalError } from "../errors.ts";
import type { Claim, ClaimId, Driver } from "../spi/driver.ts";
import { backoffMs } from "../util/backoff.ts";
import type { Clock } from "../util/clock.ts";
import type { DeadlineHeap } from "../util/deadline-heap.ts";
import { splitBatches } from "./batches.ts";
import type { ScheduledTask } from "./scheduled-task.ts";
import { createTask } from "./scheduled-task.ts";

const MAX_RETRY_MS = 2_000;

/** Receives whether the claim still existed at the store; null: the store never answered, or its answer proves nothing. */
export type ReleaseCallback = (existed: boolean | null) => void;

/** A claim that is being released. */
export interface PendingRelease {
  readonly claim: Claim;
  readonly ttlMs: number;
  readonly hasUnansweredClaim: boolean;
  /** The time at which the store has certainly dropped the claim. */
  readonly forgottenAt: number;
  onReleased: ReleaseCallback;
  /** How often a release of this claim was sent, including those of another PendingRelease for it. */
  attempts: number;
}

export interface ReleaseQueueOptions {
  readonly driver: Driver;
  readonly clock: Clock;
  readonly random: () => number;
  readonly deadlines: DeadlineHeap<ScheduledTask>;
  /** Called after a change of `deadlines`. */
  readonly armTimer: () => void;
  /** The shard of this claim has answered. */
  readonly onAnswered: (release: PendingRelease) => void;
  /** The call sent at `sentAt` failed or timed out. */
  readonly onFailed: (release: PendingRelease, sentAt: number, error: unknown) => void;
}

export class ReleaseQueue {
  readonly #options: ReleaseQueueOptions;
  #pending: PendingRelease[] = [];
  #isFlushScheduled = false;
  #inFlight = 0;
  #isStopped = false;
  #idleListeners: (() => void)[] = [];

  constructor(options: ReleaseQueueOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#inFlight;
  }

  /** Releases this claim in one call with all others of this turn. */
  add(
    claim: Claim,
    ttlMs: number,
    hasUnansweredClaim: boolean,
    lastSentAt: number,
    onReleased: ReleaseCallback,
  ): PendingRelease {
    this.#inFlight++;
    const release = { claim, ttlMs, hasUnansweredClaim, forgottenAt: lastSentAt + ttlMs, onReleased, attempts: 0 };
    this.#enqueue(release);
    return release;
  }

  /** Sends the collected releases. Called before a new claim is sent, which would otherwise queue behind the released one. */
  flush(): void {
    if (this.#pending.length === 0) return;
    const releases = this.#pending;
    this.#pending = [];
    for (const batch of splitBatches(releases, this.#options.driver)) this.#send(batch);
  }

  /** Settles when no release is left. */
  whenIdle(): Promise<void> {
    if (this.#inFlight === 0) return Promise.resolve();
    return new Promise((resolve) => this.#idleListeners.push(resolve));
  }

  /** Ends the retries: a claim whose release fails from now on stays at the store until its lease or session ends. */
  stop(): void {
    this.#isStopped = true;
  }

  #enqueue(release: PendingRelease): void {
    this.#pending.push(release);
    if (this.#isFlushScheduled) return;
    this.#isFlushScheduled = true;
    queueMicrotask(() => {
      this.#isFlushScheduled = false;
      this.flush();
    });
  }

  #send(releases: readonly PendingRelease[]): void {
    const { driver, clock, deadlines, armTimer } = this.#options;
    let isSettled = false;
    const settle = (answers: readonly boolean[] | null, error: unknown): void => {
      if (isSettled) return;
      isSettled = true;
      deadlines.remove(batch);
      const first = releases[0] as PendingRelease;
      if (answers?.length === releases.length) {
        this.#options.onAnswered(first);
        return this.#finishAll(releases, answers);
      }
      const countError = new Error(`${driver.name}: release answered for ${answers?.length} of ${releases.length}`);
      this.#options.onFailed(first, now, error ?? countError);
      // a fatal error will not go away: settle now, so that whenIdle() cannot hang
      if (isFatalError(error) && this.#idleListeners[0]) this.#finishAll(releases);
      else this.#retry(releases);
    };
    const batch = createTask(() => settle(null, new Error("the store did not answer in time")));
    const now = clock.now();
    let timeoutAt = Number.POSITIVE_INFINITY;
    let unansweredIds: Set<ClaimId> | undefined;
    for (const pending of releases) {
      pending.attempts++;
      timeoutAt = Math.min(
        timeoutAt,
        now + pending.ttlMs / 6,
        pending.forgottenAt > now ? pending.forgottenAt : Number.POSITIVE_INFINITY,
      );
      if (!pending.hasUnansweredClaim) continue;
      unansweredIds ??= new Set();
      unansweredIds.add(pending.claim.id);
    }
    deadlines.set(batch, timeoutAt);
    armTimer();
    const claims = releases.map(({ claim }) => claim);
    callDriver(() => driver.release(claims, unansweredIds)).then(
      (answers) => settle(answers, null),
      (error: unknown) => settle(null, error),
    );
  }

  #retry(releases: readonly PendingRelease[]): void {
    const { clock, random, deadlines, armTimer } = this.#options;
    const now = clock.now();
    const remembered = this.#dropForgotten(releases, now);
    const first = remembered[0];
    if (first === undefined) return;
    const batch = createTask(() => {
      for (const pending of this.#dropForgotten(remembered, clock.now())) this.#enqueue(pending);
    });
    let retryAt = now + backoffMs(first.attempts, random(), MAX_RETRY_MS);
    for (const { forgottenAt } of remembered) if (forgottenAt > now) retryAt = Math.min(retryAt, forgottenAt);
    deadlines.set(batch, retryAt);
    armTimer();
  }

  /** Returns the releases that must be repeated; finishes those whose claims the store has certainly dropped. */
  #dropForgotten(releases: readonly PendingRelease[], now: number): readonly PendingRelease[] {
    return releases.filter((pending) => {
      if (this.#isStopped || (now >= pending.forgottenAt && pending.claim.ttlMs !== "session")) {
        this.#finish(pending, null);
        return false;
      }
      if (now >= pending.forgottenAt) {
        pending.onReleased(null);
        pending.onReleased = () => undefined;
      }
      return true;
    });
  }

  #finishAll(releases: readonly PendingRelease[], answers: readonly boolean[] = []): void {
    for (const [index, pending] of releases.entries()) this.#finish(pending, answers[index] ?? null);
  }

  #finish(release: PendingRelease, existed: boolean | null): void {
    this.#inFlight--;
    release.onReleased(release.attempts === 1 || existed === true ? existed : null);
    if (this.#inFlight > 0) return;
    this.#options.armTimer(); // so that the timer no longer keeps the process alive
    for (const resolve of this.#idleListeners.splice(0)) resolve();
  }
}

/** Turns a synchronous exception of a driver into a rejection. */
export function callDriver<T>(call: () => Promise<T>): Promise<T> {
  try {
    return call();
  } catch (error) {
    return Promise.reject(error);
  }
}
