/**
 * The order in which calls that lock the same bucket row are sent. The database runs them one after another anyway. Waiting here they
 * need one connection of the pool and not one each, and the pool serves other buckets and the user's own statements.
 *
 * Invariants
 * - A call has the turn of its bucket until it is over, but at most for NEARBY_TURN_MS, or REMOTE_TURN_MS if the database is not known to be
 *   nearby: a call that is stuck, or has no connection yet, delays the next one by no more.
 * - While calls of a bucket wait here, another one has the turn, or the next one starts in a microtask.
 * - The kinds of calls go in turn: renewals, releases, claims. So no lease ends behind a flood of releases or claims of its own process, no
 *   claim waits behind renewals of waiting claims, which may be made without a pause, and a claim is sent after the release before it.
 *   Within a kind the order is kept.
 */

import type { Clock, Timer } from "../../util/clock.ts";
import { runInMicrotask } from "../../util/microtask.ts";

/** How long a call to a remote database has the turn. Such calls overlap, since most of their time is spent on the network. */
export const REMOTE_TURN_MS = 10;
/** The same for a database nearby: longer than most calls take, also those that wait for a row or for the disk. */
export const NEARBY_TURN_MS = 50;
/** The database counts as nearby if its fastest call took no longer. */
const NEARBY_MS = 5;

/** "release" also stands for calls that restore claims, which no release may overtake; "renewal" for all others but claims. */
export type CallKind = "release" | "renewal" | "claim";

/** The order in which they go in turn. */
const KINDS: readonly CallKind[] = ["renewal", "release", "claim"];

type Start = () => void;

interface Turn {
  /** The call that has the turn; null: it is over, and the next one starts in a microtask. */
  holder: Start | null;
  endsAt: number;
  /** That of the call that started last. */
  lastKind: CallKind;
  /** The calls that wait, of each kind. */
  readonly waiting: Readonly<Record<CallKind, Set<Start>>>;
}

export class BucketTurns {
  readonly #clock: Clock;
  readonly #timer: Timer;
  /** By bucket, while a call has the turn. */
  readonly #turns = new Map<number, Turn>();
  /** The timer fires no later than the first turn ends that others wait for; null: it is not set. */
  #timerDueAt: number | null = null;
  #fastestMs = Number.POSITIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#timer = clock.timer(() => this.#endLongTurns());
  }

  /** Calls `start` when it is the call's turn, perhaps now. Call the result once, when the call is over or is given up. */
  take(bucket: number, kind: CallKind, start: Start): () => void {
    const turn = this.#turns.get(bucket);
    if (turn === undefined) {
      const endsAt = this.#endOfTurn();
      const waiting = { release: new Set<Start>(), renewal: new Set<Start>(), claim: new Set<Start>() };
      this.#turns.set(bucket, { holder: start, endsAt, lastKind: kind, waiting });
      start();
    } else {
      turn.waiting[kind].add(start);
      this.#setTimer(turn);
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

  /** When a turn ends that begins now. */
  #endOfTurn(): number {
    return this.#clock.now() + (this.#fastestMs <= NEARBY_MS ? NEARBY_TURN_MS : REMOTE_TURN_MS);
  }

  #leave(bucket: number, kind: CallKind, start: Start): void {
    const turn = this.#turns.get(bucket);
    if (turn === undefined || turn.waiting[kind].delete(start)) return;
    if (turn.holder !== start) return; // its turn has ended before
    if (!isAwaited(turn)) {
      this.#turns.delete(bucket);
      return;
    }
    turn.holder = null;
    // calls time out together: none of them may start because another one has left
    runInMicrotask(() => this.#startNext(bucket, turn));
  }

  #startNext(bucket: number, turn: Turn): void {
    const kind = nextKind(turn);
    const [next] = kind === undefined ? [] : turn.waiting[kind];
    if (kind === undefined || next === undefined) {
      this.#turns.delete(bucket);
      return;
    }
    turn.lastKind = kind;
    turn.waiting[kind].delete(next);
    turn.holder = next;
    turn.endsAt = this.#endOfTurn();
    if (isAwaited(turn)) this.#setTimer(turn);
    next();
  }

  #setTimer({ endsAt }: Turn): void {
    if (this.#timerDueAt !== null && this.#timerDueAt <= endsAt) return;
    this.#timerDueAt = endsAt;
    this.#timer.set(endsAt);
  }

  #endLongTurns(): void {
    const now = this.#clock.now();
    this.#timerDueAt = null;
    for (const [bucket, turn] of [...this.#turns]) {
      if (!isAwaited(turn)) continue;
      if (turn.endsAt <= now && turn.holder !== null) this.#startNext(bucket, turn);
      else this.#setTimer(turn);
    }
  }
}

/** The next kind of which a call waits; undefined: none does. */
function nextKind({ lastKind, waiting }: Turn): CallKind | undefined {
  return listKindsAfter(lastKind).find((kind) => waiting[kind].size > 0);
}

/** All kinds, in the order of their turns after a call of this one. */
export function listKindsAfter(kind: CallKind): readonly CallKind[] {
  const first = KINDS.indexOf(kind) + 1;
  return [...KINDS.slice(first), ...KINDS.slice(0, first)];
}

/** Whether calls wait for its end. */
function isAwaited({ waiting: { release, renewal, claim } }: Turn): boolean {
  return release.size + renewal.size + claim.size > 0;
}
