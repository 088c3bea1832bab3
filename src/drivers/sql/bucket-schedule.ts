/**
 * The order in which calls that lock the same bucket row are sent. The database runs them one after another anyway. Waiting here they
 * need one connection of the pool and not one each, and the pool serves other buckets and the user's own statements.
 *
 * Invariants
 * - The next call for a bucket starts when the current one is over, or after NEARBY_ALONE_MS, or after REMOTE_ALONE_MS if the database is not
 *   known to be nearby: a call that is stuck, or has no connection yet, delays the next one by no more.
 * - While calls for a bucket wait here, another one is current, or the next one starts in a microtask.
 * - The kinds of calls alternate: renewals, releases, claims. So no lease ends behind a flood of releases or claims of its own process, no
 *   claim waits behind renewals of waiting claims, which may be made without a pause, and a claim is sent after the release before it.
 *   Within a kind the order is kept.
 */

import type { Clock, Timer } from "../../util/clock.ts";
import { runInMicrotask } from "../../util/microtask.ts";

/** How long a call to a remote database keeps the next one waiting. Such calls overlap, since most of their time is spent on the network. */
export const REMOTE_ALONE_MS = 10;
/** The same for a database nearby: longer than most calls take, also those that wait for a row or for the disk. */
export const NEARBY_ALONE_MS = 50;
/** The database counts as nearby if its fastest call took no longer. */
const NEARBY_MS = 5;

/** "release" also stands for calls that restore claims, which no release may overtake; "renewal" for all others but claims. */
export type CallKind = "release" | "renewal" | "claim";

/** The order in which they alternate. */
const KINDS: readonly CallKind[] = ["renewal", "release", "claim"];

type Start = () => void;

/** The calls for one bucket. */
interface BucketCalls {
  /** The call that started last; null: it is over, and the next one starts in a microtask. */
  current: Start | null;
  /** When the next one starts, even if the current one is not over. */
  nextStartsAt: number;
  /** That of the call that started last. */
  lastKind: CallKind;
  /** The calls that wait, of each kind. */
  readonly waiting: Readonly<Record<CallKind, Set<Start>>>;
}

export class BucketSchedule {
  readonly #clock: Clock;
  readonly #timer: Timer;
  /** By bucket, while it has a current call. */
  readonly #buckets = new Map<number, BucketCalls>();
  /** The timer fires no later than the first of the waiting calls starts; null: it is not set. */
  #timerDueAt: number | null = null;
  #fastestMs = Number.POSITIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#timer = clock.timer(() => this.#startOverdue());
  }

  /** Calls `start` when the call may be sent, perhaps now. Call the result once, when the call is over or is given up. */
  schedule(bucket: number, kind: CallKind, start: Start): () => void {
    const calls = this.#buckets.get(bucket);
    if (calls === undefined) {
      const nextStartsAt = this.#nextStartTime();
      const waiting = { release: new Set<Start>(), renewal: new Set<Start>(), claim: new Set<Start>() };
      this.#buckets.set(bucket, { current: start, nextStartsAt, lastKind: kind, waiting });
      start();
    } else {
      calls.waiting[kind].add(start);
      this.#setTimer(calls);
    }
    return () => this.#leave(bucket, kind, start);
  }

  /** A statement of any kind was answered after this time. */
  noteAnswer(afterMs: number): void {
    this.#fastestMs = Math.min(this.#fastestMs, afterMs);
  }

  close(): void {
    this.#timer.stop();
  }

  /** When the call after one that starts now starts at the latest. */
  #nextStartTime(): number {
    return this.#clock.now() + (this.#fastestMs <= NEARBY_MS ? NEARBY_ALONE_MS : REMOTE_ALONE_MS);
  }

  #leave(bucket: number, kind: CallKind, start: Start): void {
    const calls = this.#buckets.get(bucket);
    if (calls === undefined || calls.waiting[kind].delete(start)) return;
    if (calls.current !== start) return; // another call has started since
    if (!isAwaited(calls)) {
      this.#buckets.delete(bucket);
      return;
    }
    calls.current = null;
    // calls time out together: none of them may start because another one has left
    runInMicrotask(() => this.#startNext(bucket, calls));
  }

  #startNext(bucket: number, calls: BucketCalls): void {
    const kind = nextKind(calls);
    const [next] = kind === undefined ? [] : calls.waiting[kind];
    if (kind === undefined || next === undefined) {
      this.#buckets.delete(bucket);
      return;
    }
    calls.lastKind = kind;
    calls.waiting[kind].delete(next);
    calls.current = next;
    calls.nextStartsAt = this.#nextStartTime();
    if (isAwaited(calls)) this.#setTimer(calls);
    next();
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
      if (!isAwaited(calls)) continue;
      if (calls.nextStartsAt <= now && calls.current !== null) this.#startNext(bucket, calls);
      else this.#setTimer(calls);
    }
  }
}

/** The next kind of which a call waits; undefined: none does. */
function nextKind({ lastKind, waiting }: BucketCalls): CallKind | undefined {
  return listKindsAfter(lastKind).find((kind) => waiting[kind].size > 0);
}

/** All kinds, in their order after a call of this one. */
export function listKindsAfter(kind: CallKind): readonly CallKind[] {
  const first = KINDS.indexOf(kind) + 1;
  return [...KINDS.slice(first), ...KINDS.slice(0, first)];
}

/** Whether calls wait for the current one. */
function isAwaited({ waiting: { release, renewal, claim } }: BucketCalls): boolean {
  return release.size + renewal.size + claim.size > 0;
}
