/**
 * When each call of a session asks the pool for a connection. The states of a call are described in call.ts: this file
 * moves it from "queued" to "throttled" and "asking".
 *
 * Calls that lock the same bucket row are sent one after another, since the database runs them so anyway. Waiting here
 * they need one connection of the pool and not one each, and the pool serves other buckets and the user's own
 * statements.
 * - The next call for a bucket starts when the current one is over, or after NEARBY_ALONE_MS, or after REMOTE_ALONE_MS
 *   if the database is not known to be nearby: a call that is stuck, or has no connection yet, delays the next one by
 *   no more.
 * - While calls for a bucket are queued, another one is current, or the next one starts in a microtask.
 * - The kinds of calls alternate (call-kinds.ts). Within a kind the order is kept.
 *
 * A program may make hundreds of `claim` calls at once, and a pool serves in order, while one call renews or releases
 * many claims. So claims ask a few at a time, and all others at once: leases do not end because their renewals wait
 * behind a burst of claims.
 * - At most MAX_ASKING of the claims are asking.
 * - While one is throttled, MAX_ASKING others are asking: no connection of the pool is idle for lack of calls.
 *
 * Calls that time out together leave one by one: none of them may start because another one has left, so whatever
 * follows a call starts in a microtask.
 */

import type { Clock, Timer } from "../../util/clock.ts";
import { runInMicrotask } from "../../util/microtask.ts";
import type { CallKind } from "./call-kinds.ts";
import { listKindsAfter } from "./call-kinds.ts";

/**
 * How long a call to a remote database keeps the next one waiting. Such calls overlap, since most of their time is
 * spent on the network.
 */
export const REMOTE_ALONE_MS = 10;
/** The same for a database nearby: longer than most calls take, also those that wait for a row or for the disk. */
export const NEARBY_ALONE_MS = 50;
/** The database counts as nearby if its fastest call took no longer. */
const NEARBY_MS = 5;
/**
 * As few as possible, since a renewal waits for their statements, too. With one, a pool would open its connections one
 * after another.
 */
const MAX_ASKING = 2;

/** What the scheduler needs of a call, which is "queued" when it is added. */
export interface ScheduledCall {
  /** The one bucket that it locks; null: none or several, so it delays no other call. */
  readonly bucket: number | null;
  readonly kind: CallKind;
  /** No other call for its bucket is in its way; other claims are. */
  throttle(): void;
  /** Asks the pool for a connection. */
  ask(): void;
}

/** The calls for one bucket. */
interface BucketCalls {
  /** The call that started last; null: it is over, and the next one starts in a microtask. */
  current: ScheduledCall | null;
  /** When the next one starts, even if the current one is not over. */
  nextStartsAt: number;
  /** That of the call that started last. */
  lastKind: CallKind;
  /** The calls that are queued, of each kind. */
  readonly queued: Readonly<Record<CallKind, Set<ScheduledCall>>>;
}

export class CallScheduler {
  readonly #clock: Clock;
  readonly #timer: Timer;
  /** By bucket, while it has a current call. */
  readonly #buckets = new Map<number, BucketCalls>();
  /** The timer fires no later than the first of the queued calls starts; null: it is not set. */
  #timerDueAt: number | null = null;
  #fastestMs = Number.POSITIVE_INFINITY;
  /** The claims that are throttled, in order. */
  readonly #throttledClaims = new Set<ScheduledCall>();
  readonly #askingClaims = new Set<ScheduledCall>();
  #areClaimsDue = false;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#timer = clock.timer(() => this.#startOverdue());
  }

  /** Starts the call when it may be sent, perhaps now. */
  add(call: ScheduledCall): void {
    const { bucket, kind } = call;
    if (bucket === null) return this.#start(call);
    const calls = this.#buckets.get(bucket);
    if (calls === undefined) {
      const nextStartsAt = this.#nextStartTime();
      const queued = {
        release: new Set<ScheduledCall>(),
        renewal: new Set<ScheduledCall>(),
        claim: new Set<ScheduledCall>(),
      };
      this.#buckets.set(bucket, { current: call, nextStartsAt, lastKind: kind, queued });
      this.#start(call);
    } else {
      calls.queued[kind].add(call);
      this.#setTimer(calls);
    }
  }

  /** The call has a connection. It may be told again, with another connection. */
  onSent(call: ScheduledCall): void {
    this.#leaveClaims(call);
  }

  /**
   * The call is over, whatever its state was.
   * @param answerMs the time from its connection to its answer; null: it has none
   */
  onOver(call: ScheduledCall, answerMs: number | null): void {
    if (answerMs !== null) this.#fastestMs = Math.min(this.#fastestMs, answerMs);
    this.#leaveClaims(call);
    if (call.bucket !== null) this.#leaveBucket(call, call.bucket);
  }

  close(): void {
    this.#timer.stop();
  }

  /** No other call for its bucket is in its way. */
  #start(call: ScheduledCall): void {
    if (call.kind !== "claim") return call.ask();
    call.throttle();
    this.#throttledClaims.add(call);
    this.#askForClaims();
  }

  #leaveClaims(call: ScheduledCall): void {
    const hasLeft = this.#askingClaims.delete(call) || this.#throttledClaims.delete(call);
    if (!hasLeft || this.#areClaimsDue || this.#throttledClaims.size === 0) return;
    this.#areClaimsDue = true;
    runInMicrotask(() => {
      this.#areClaimsDue = false;
      this.#askForClaims();
    });
  }

  #askForClaims(): void {
    for (const call of this.#throttledClaims) {
      if (this.#askingClaims.size >= MAX_ASKING) return;
      this.#throttledClaims.delete(call);
      this.#askingClaims.add(call);
      call.ask();
    }
  }

  #leaveBucket(call: ScheduledCall, bucket: number): void {
    const calls = this.#buckets.get(bucket);
    if (calls === undefined || calls.queued[call.kind].delete(call)) return;
    if (calls.current !== call) return; // another call has started since
    if (!hasQueued(calls)) {
      this.#buckets.delete(bucket);
      return;
    }
    calls.current = null;
    runInMicrotask(() => this.#startNext(bucket, calls));
  }

  #startNext(bucket: number, calls: BucketCalls): void {
    const kind = nextKind(calls);
    const [next] = kind === undefined ? [] : calls.queued[kind];
    if (kind === undefined || next === undefined) {
      this.#buckets.delete(bucket);
      return;
    }
    calls.lastKind = kind;
    calls.queued[kind].delete(next);
    calls.current = next;
    calls.nextStartsAt = this.#nextStartTime();
    if (hasQueued(calls)) this.#setTimer(calls);
    this.#start(next);
  }

  /** When the call after one that starts now starts at the latest. */
  #nextStartTime(): number {
    return this.#clock.now() + (this.#fastestMs <= NEARBY_MS ? NEARBY_ALONE_MS : REMOTE_ALONE_MS);
  }

  #setTimer({ nextStartsAt }: BucketCalls): void {
    if (this.#timerDueAt !== null && this.#timerDueAt <= nextStartsAt) return;
    this.#timerDueAt = nextStartsAt;
    this.#timer.set(nextStartsAt);
  }

  #startOverdue(): void {
    const now = this.#clock.now();
    this.#timerDueAt = null;
    for (const [bucket, calls] of [...this.#buckets]) {
      if (!hasQueued(calls)) continue;
      if (calls.nextStartsAt <= now && calls.current !== null) this.#startNext(bucket, calls);
      else this.#setTimer(calls);
    }
  }
}

/** The next kind of which a call is queued; undefined: none is. */
function nextKind({ lastKind, queued }: BucketCalls): CallKind | undefined {
  return listKindsAfter(lastKind).find((kind) => queued[kind].size > 0);
}

/** Whether calls wait for the current one. */
function hasQueued({ queued: { release, renewal, claim } }: BucketCalls): boolean {
  return release.size + renewal.size + claim.size > 0;
}
