/**
 * One claim's conversation with the store: the call under way, when to give up on it, when to try again.
 *
 * Invariant: at most one call of a claim is under way that has not been given up on; a nudge that comes meanwhile is
 * not dropped but answered by another call as soon as that one settles, since the answer under way may be older.
 */

import { backoffMs } from "./backoff.ts";

export interface Talk {
  /** How many calls were sent; the number of the last one. */
  readonly calls: number;
  /** When the call under way was sent; null if none is. */
  readonly sentAt: number | null;
  /** Is the call under way a `claim` (else a `renew`)? */
  readonly asks: boolean;
  /** Something may have changed since the call under way was sent: call again when it settles. */
  readonly again: boolean;
  /** Failures in a row. */
  readonly failures: number;
  /** When to call again after a failure. */
  readonly retryAt: number;
  /** An earlier `claim` call was never answered: it may still arrive at the store. */
  readonly unanswered: boolean;
  /** Calls up to this number were sent before the machine slept: how old their answers are our clock cannot tell. */
  readonly sleptAfter: number;
}

const LONGEST_RETRY_MS = 2_000;

/** A conversation that begins with a `claim` sent now. */
export function opened(now: number): Talk {
  return { calls: 1, sentAt: now, asks: true, again: false, failures: 0, retryAt: 0, unanswered: false, sleptAfter: 0 };
}

/** A conversation that begins later. */
export function postponed(until: number): Talk {
  return { ...opened(0), calls: 0, sentAt: null, asks: false, failures: 1, retryAt: until };
}

/** A call is sent now. */
export function sent(talk: Talk, now: number, asks: boolean): Talk {
  const { calls, failures, retryAt, unanswered, sleptAfter } = talk;
  return { calls: calls + 1, sentAt: now, asks, again: false, failures, retryAt, unanswered, sleptAfter };
}

/** The call under way, or a push that says as much, has been answered. */
export function settled(talk: Talk): Talk {
  const { calls, unanswered, sleptAfter } = talk;
  return { calls, sentAt: null, asks: false, again: false, failures: 0, retryAt: 0, unanswered, sleptAfter };
}

/** The call under way has been answered, too late to be good news: what failed before is not made up for. */
export function unconfirmed(talk: Talk): Talk {
  return { ...settled(talk), failures: talk.failures };
}

/** The call under way failed or was given up on: its outcome is unknown. */
export function failed(talk: Talk, now: number, random: number, ttlMs: number): Talk {
  const failures = talk.failures + 1;
  const retryAt = now + (talk.again ? 0 : backoffMs(failures, random, Math.min(LONGEST_RETRY_MS, ttlMs / 6)));
  const unanswered = talk.unanswered || talk.asks;
  return { ...talk, sentAt: null, asks: false, again: false, failures, retryAt, unanswered };
}

/** The machine slept without our clock counting it. */
export function slept(talk: Talk): Talk {
  return { ...talk, sleptAfter: talk.calls };
}

/** A nudge came while a call is under way. */
export function nudged(talk: Talk): Talk {
  return { ...talk, again: true };
}

/** Would ending now leave a `claim` call behind that the store may still meet? */
export function leavesUnanswered(talk: Talk): boolean {
  return talk.unanswered || (talk.sentAt !== null && talk.asks);
}

/** When to give up on the call under way: at least four attempts fit between a renewal's due time and the lease's end. */
export function givesUpAt(talk: Talk, ttlMs: number): number {
  return talk.sentAt === null ? Number.POSITIVE_INFINITY : talk.sentAt + ttlMs / 6;
}

/** When this conversation has to do something by itself, `regularAt` being the next call if all is well. */
export function talksAt(talk: Talk, ttlMs: number, regularAt: number): number {
  if (talk.sentAt !== null) return givesUpAt(talk, ttlMs);
  return talk.failures > 0 ? talk.retryAt : regularAt;
}
