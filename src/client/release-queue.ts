/**
 * Leaving is certain (design A.15): a release is sent until it is answered, or until the store has forgotten the claim
 * by itself: one ttl after its last claim or renew was sent. A session's claim is never forgotten while the session
 * lives; whoever waits to hear of its release is told after that time that nothing is known, and it is sent on.
 *
 * Invariant: the store's "it was not there" is only believed of the first and only release sent; a repeated one finds
 * nothing although all was well.
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

/** true, false: what the store said; null: it never said, or its word is worth nothing. */
export type ReleaseCallback = (wasThere: boolean | null) => void;

/** A claim on its way out. */
export interface PendingRelease {
  readonly claim: Claim;
  readonly ttlMs: number;
  readonly hasUnansweredClaim: boolean;
  /** The store has forgotten the claim by then. */
  readonly forgottenAt: number;
  onReleased: ReleaseCallback;
  /** How often a release of this claim was sent; another PendingRelease for the same claim counts too. */
  attempts: number;
}

export interface ReleaseQueueOptions {
  readonly driver: Driver;
  readonly clock: Clock;
  readonly random: () => number;
  readonly deadlines: DeadlineHeap<ScheduledTask>;
  /** The schedule has changed. */
  readonly armTimer: () => void;
  /** The part of the store that keeps this claim has answered. */
  readonly onAnswered: (release: PendingRelease) => void;
  /** It has not, or has failed, when it was asked then. */
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

  /** Release this claim, in one call with all others of this turn. */
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

  /** Sends what has gathered; before a claim of the same turn, so that it does not queue behind its own predecessor. */
  flush(): void {
    if (this.#pending.length === 0) return;
    const releases = this.#pending;
    this.#pending = [];
    for (const batch of splitBatches(releases, this.#options.driver)) this.#send(batch);
  }

  /** Settles when nothing is left to release. */
  whenIdle(): Promise<void> {
    if (this.#inFlight === 0) return Promise.resolve();
    return new Promise((resolve) => this.#idleListeners.push(resolve));
  }

  /** What fails from now on is not sent again: the store learns of it by the end of a lease or session. */
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
      // who waits for the end of all releases would wait in vain: asking again is useless
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

  /** Those that the store may still know; who waits for the others is told. */
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

  #finish(release: PendingRelease, wasThere: boolean | null): void {
    this.#inFlight--;
    release.onReleased(release.attempts === 1 || wasThere === true ? wasThere : null);
    if (this.#inFlight > 0) return;
    this.#options.armTimer(); // nothing keeps the process any more
    for (const resolve of this.#idleListeners.splice(0)) resolve();
  }
}

/** A driver that throws where it should reject is treated alike. */
export function callDriver<T>(call: () => Promise<T>): Promise<T> {
  try {
    return call();
  } catch (error) {
    return Promise.reject(error);
  }
}
