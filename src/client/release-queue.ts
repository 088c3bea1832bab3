/**
 * Sends each release until it is answered, or until the store has certainly dropped the claim: one ttl after the
 * claim's last `claim` or `renew` call was sent. A session claim is not dropped while its session lives: after that
 * time its callback receives null (unknown), and the release is still repeated.
 *
 * A process that has nothing else to do waits for the answers for a moment only: then the callbacks receive null, and
 * the claims end with their leases. One that lives on repeats the releases.
 *
 * Invariant: "did not exist" counts only as the answer to a release that was sent once. A repeated release finds no
 * claim if the first one succeeded and only its answer was lost.
 */

import { ATTEMPTS_PER_LEASE } from "../claim/lease-shares.ts";
import { isFatalError } from "../errors.ts";
import type { Claim, Driver, Release } from "../spi/driver.ts";
import { backoffMs } from "../util/backoff.ts";
import type { Timer } from "../util/clock.ts";
import type { Linked } from "../util/linked-list.ts";
import { LinkedList } from "../util/linked-list.ts";
import { runInMicrotask } from "../util/microtask.ts";
import { rejectOnThrow } from "../util/timeout.ts";
import { exitListeners } from "./exit-listeners.ts";
import type { Scheduler } from "./scheduler.ts";
import type { StoreMonitor } from "./store-monitor.ts";

const MAX_RETRY_MS = 2_000;
/** How long the last release that was made keeps the process alive without an answer. */
const KEEP_ALIVE_MS = 750;
/** The most claims in one renew or release call. */
export const MAX_BATCH = 500;

/**
 * Receives whether the claim still existed at the store; null: the store never answered, or its answer proves nothing.
 */
export type ReleaseCallback = (existed: boolean | null) => void;

/** A claim that is being released. */
export interface PendingRelease extends Release, Linked<PendingRelease> {
  readonly source: ReleasableClaim;
  readonly ttlMs: number;
  /** The time at which the store has certainly dropped the claim. */
  readonly forgottenAt: number;
  onReleased: ReleaseCallback;
  /** How often a release of this claim was sent, including those of another PendingRelease for it. */
  attempts: number;
}

/** What the queue reads of a claim. */
interface ReleasableClaim {
  readonly claim: Claim;
  readonly settings: { readonly ttlMs: number };
  readonly lastSentAt: number;
  /** Its earlier release, if there was one. */
  readonly pendingRelease: PendingRelease | null;
}

/** Nothing is added to it. */
const NONE: PendingRelease[] = [];

export class ReleaseQueue {
  readonly #driver: Driver;
  readonly #random: () => number;
  readonly #scheduler: Scheduler;
  readonly #storeMonitor: StoreMonitor;
  #pending: PendingRelease[] = NONE;
  #isFlushScheduled = false;
  readonly #inFlight = new LinkedList<PendingRelease>();
  #isStopped = false;
  #idleListeners: (() => void)[] = [];
  /** Repeat releases that have failed; each waits for its time. */
  readonly #retries = new Set<() => void>();
  /** The releases keep the process alive, until this time at least. */
  #keepsAlive = false;
  #aliveUntil = 0;
  readonly #aliveTimer: Timer;

  constructor(driver: Driver, random: () => number, scheduler: Scheduler, storeMonitor: StoreMonitor) {
    this.#driver = driver;
    this.#random = random;
    this.#scheduler = scheduler;
    this.#storeMonitor = storeMonitor;
    this.#aliveTimer = scheduler.timer(() => this.#onAliveTimer());
  }

  get size(): number {
    return this.#inFlight.size;
  }

  /** Releases this claim in one call with all others of this turn. */
  add(source: ReleasableClaim, hasUnansweredClaim: boolean, onReleased: ReleaseCallback): PendingRelease {
    const { claim, settings, lastSentAt, pendingRelease } = source;
    // the store may receive this release first: "did not exist" then proves nothing for either
    if (pendingRelease !== null) pendingRelease.attempts++;
    const { ttlMs } = settings;
    const forgottenAt = lastSentAt + ttlMs;
    const answer = { onReleased, attempts: 0, previous: null, next: null };
    const release: PendingRelease = { claim, source, ttlMs, hasUnansweredClaim, forgottenAt, ...answer };
    this.#inFlight.push(release);
    this.#enqueue(release);
    return release;
  }

  /**
   * Sends the collected releases. Called before a new claim is sent, which would otherwise queue behind the released
   * one.
   */
  flush(): void {
    if (this.#pending.length === 0) return;
    const releases = this.#pending;
    this.#pending = NONE;
    for (const batch of splitBatches(releases, this.#driver)) this.#send(batch);
  }

  /** The store is connected again: repeats the failed releases now, so that their keys need not wait for a retry. */
  retryNow(): void {
    for (const retry of [...this.#retries]) retry();
  }

  /** Settles when no release is left. */
  whenIdle(): Promise<void> {
    if (this.#inFlight.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#idleListeners.push(resolve));
  }

  /** Ends the retries: a claim whose release fails from now on stays at the store until its lease or session ends. */
  stop(): void {
    this.#isStopped = true;
  }

  #enqueue(release: PendingRelease): void {
    // push() would reserve room for sixteen more
    if (this.#pending.length === 0) this.#pending = [release];
    else this.#pending.push(release);
    if (this.#pending.length >= (this.#driver.releasesPerCall ?? MAX_BATCH)) return this.flush();
    if (this.#isFlushScheduled) return;
    this.#isFlushScheduled = true;
    runInMicrotask(this.#flushLater);
  }

  readonly #flushLater = (): void => {
    this.#isFlushScheduled = false;
    this.flush();
  };

  #send(releases: readonly PendingRelease[]): void {
    const sentAt = this.#scheduler.now();
    let timeoutAt = Number.POSITIVE_INFINITY;
    let hasNew = false;
    for (const pending of releases) {
      if (pending.attempts++ === 0) hasNew = true;
      timeoutAt = Math.min(
        timeoutAt,
        sentAt + pending.ttlMs / ATTEMPTS_PER_LEASE,
        pending.forgottenAt > sentAt ? pending.forgottenAt : Number.POSITIVE_INFINITY,
      );
    }
    if (hasNew) this.#keepAlive(sentAt);
    const settle = (answers: readonly boolean[] | null, error?: unknown): void => {
      if (call.isSettled) return;
      call.isSettled = true;
      this.#scheduler.cancel(call);
      this.#onSettled(releases, sentAt, answers, error);
    };
    const onDue = (): void => settle(null, new Error("the store did not answer in time"));
    const call = { mayRunEarly: false, dueAt: 0, heapIndex: -1, isSettled: false, onDue };
    this.#scheduler.schedule(call, timeoutAt);
    rejectOnThrow(() => this.#driver.release(releases)).then(settle, (error: unknown) => settle(null, error));
  }

  /** @param answers null: the call has failed */
  #onSettled(
    releases: readonly PendingRelease[],
    sentAt: number,
    answers: readonly boolean[] | null,
    error: unknown,
  ): void {
    const driver = this.#driver;
    const shard = driver.shardOf?.((releases[0] as PendingRelease).claim);
    if (answers?.length === releases.length) {
      this.#storeMonitor.recordContact(this.#scheduler.now(), shard);
      return this.#finishAll(releases, answers);
    }
    const countError = new Error(`${driver.name}: release answered for ${answers?.length} of ${releases.length}`);
    this.#storeMonitor.onFailure(error ?? countError, sentAt, shard);
    // a fatal error will not go away: settle now, so that whenIdle() cannot hang
    if (isFatalError(error) && this.#idleListeners[0]) this.#finishAll(releases);
    else this.#retry(releases);
  }

  #retry(releases: readonly PendingRelease[]): void {
    const now = this.#scheduler.now();
    const remembered = this.#dropForgotten(releases, now);
    const first = remembered[0];
    if (first === undefined) return;
    let retryAt = now + backoffMs(first.attempts, this.#random(), MAX_RETRY_MS);
    for (const { forgottenAt } of remembered) if (forgottenAt > now) retryAt = Math.min(retryAt, forgottenAt);
    const retry = (): void => {
      timer.stop();
      this.#retries.delete(retry);
      for (const pending of this.#dropForgotten(remembered, this.#scheduler.now())) this.#enqueue(pending);
    };
    const timer = this.#scheduler.timer(retry);
    timer.set(retryAt);
    this.#retries.add(retry);
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
    this.#inFlight.remove(release);
    release.onReleased(release.attempts === 1 || existed === true ? existed : null);
    if (this.#inFlight.size > 0) return;
    this.#stopKeepingAlive();
    exitListeners.delete(this.#giveUp);
    this.#scheduler.arm(); // it need not fire for them any more
    for (const resolve of this.#idleListeners.splice(0)) resolve();
  }

  #keepAlive(now: number): void {
    this.#aliveUntil = now + KEEP_ALIVE_MS;
    if (this.#keepsAlive) return; // the timer is moved when it fires
    this.#keepsAlive = true;
    this.#scheduler.ref();
    this.#aliveTimer.set(this.#aliveUntil);
  }

  #stopKeepingAlive(): void {
    if (!this.#keepsAlive) return;
    this.#keepsAlive = false;
    this.#scheduler.unref();
    this.#aliveTimer.stop();
  }

  #onAliveTimer(): void {
    if (this.#scheduler.now() < this.#aliveUntil) return this.#aliveTimer.set(this.#aliveUntil);
    this.#stopKeepingAlive();
    exitListeners.add(this.#giveUp);
  }

  /**
   * The process has nothing else to do, unless code waits for these releases. They are still repeated if it lives on.
   */
  readonly #giveUp = (): void => {
    for (const pending of [...this.#inFlight]) {
      pending.onReleased(null);
      pending.onReleased = () => undefined;
    }
    for (const resolve of this.#idleListeners.splice(0)) resolve();
  };
}

/** Splits items into batches of at most MAX_BATCH, each for one shard of the store; keeps their order. */
export function splitBatches<T extends { readonly claim: Claim }>(
  items: readonly T[],
  driver: Driver,
): readonly (readonly T[])[] {
  if (items.length === 1) return [items]; // the usual release
  const batches: T[][] = [];
  const openBatches = new Map<string | undefined, T[]>();
  for (const item of items) {
    const shard = driver.shardOf?.(item.claim);
    let batch = openBatches.get(shard);
    if (batch === undefined || batch.length === MAX_BATCH) {
      batch = [];
      batches.push(batch);
      openBatches.set(shard, batch);
    }
    batch.push(item);
  }
  return batches;
}
