/**
 * One claim's conversation with the store: the call under way, when to give up on it, when to try again.
 *
 * Invariant: at most one call of a claim is under way that has not been given up on; a nudge that comes meanwhile is
 * not dropped but answered by another call as soon as that one settles, since the answer under way may be older.
 */

import { backoffMs } from "../util/backoff.ts";

export interface CallState {
  /** How many calls were sent; the number of the last one. */
  readonly calls: number;
  /** When the call under way was sent; null if none is. */
  readonly sentAt: number | null;
  /** Is the call under way a `claim` (else a `renew`)? */
  readonly isClaimCall: boolean;
  /** Something may have changed since the call under way was sent: call again when it settles. */
  readonly callAgain: boolean;
  /** Failures in a row. */
  readonly failures: number;
  /** When to call again after a failure. */
  readonly retryAt: number;
  /** An earlier `claim` call was never answered: it may still arrive at the store. */
  readonly hasUnansweredClaim: boolean;
  /** Calls up to this number were sent before the machine slept: how old their answers are our clock cannot tell. */
  readonly lastCallBeforeSuspend: number;
}

const MAX_RETRY_MS = 2_000;

/** A conversation that begins with a `claim` sent now. */
export function firstCall(now: number): CallState {
  return {
    calls: 1,
    sentAt: now,
    isClaimCall: true,
    callAgain: false,
    failures: 0,
    retryAt: 0,
    hasUnansweredClaim: false,
    lastCallBeforeSuspend: 0,
  };
}

/** A conversation that begins later. */
export function delayedCall(until: number): CallState {
  return { ...firstCall(0), calls: 0, sentAt: null, isClaimCall: false, failures: 1, retryAt: until };
}

/** A call is sent now. */
export function afterSend(callState: CallState, now: number, isClaimCall: boolean): CallState {
  const { calls, failures, retryAt, hasUnansweredClaim, lastCallBeforeSuspend } = callState;
  return {
    calls: calls + 1,
    sentAt: now,
    isClaimCall,
    callAgain: false,
    failures,
    retryAt,
    hasUnansweredClaim,
    lastCallBeforeSuspend,
  };
}

/** The call under way, or a push that says as much, has been answered. */
export function afterReply(callState: CallState): CallState {
  const { calls, hasUnansweredClaim, lastCallBeforeSuspend } = callState;
  return {
    calls,
    sentAt: null,
    isClaimCall: false,
    callAgain: false,
    failures: 0,
    retryAt: 0,
    hasUnansweredClaim,
    lastCallBeforeSuspend,
  };
}

/** The call under way has been answered, too late to be good news: what failed before is not made up for. */
export function afterLateReply(callState: CallState): CallState {
  return { ...afterReply(callState), failures: callState.failures };
}

/** The call under way failed or was given up on: its outcome is unknown. */
export function afterFailure(callState: CallState, now: number, random: number, ttlMs: number): CallState {
  const failures = callState.failures + 1;
  const retryAt = now + (callState.callAgain ? 0 : backoffMs(failures, random, Math.min(MAX_RETRY_MS, ttlMs / 6)));
  const hasUnansweredClaim = callState.hasUnansweredClaim || callState.isClaimCall;
  return { ...callState, sentAt: null, isClaimCall: false, callAgain: false, failures, retryAt, hasUnansweredClaim };
}

/** The machine slept without our clock counting it. */
export function afterSuspend(callState: CallState): CallState {
  return { ...callState, lastCallBeforeSuspend: callState.calls };
}

/** A nudge came while a call is under way. */
export function askAgain(callState: CallState): CallState {
  return { ...callState, callAgain: true };
}

/** Would ending now leave a `claim` call behind that the store may still meet? */
export function leavesClaimUnanswered(callState: CallState): boolean {
  return callState.hasUnansweredClaim || (callState.sentAt !== null && callState.isClaimCall);
}

/** When to give up on the call under way: at least four attempts fit between a renewal's due time and the lease's end. */
export function timesOutAt(callState: CallState, ttlMs: number): number {
  return callState.sentAt === null ? Number.POSITIVE_INFINITY : callState.sentAt + ttlMs / 6;
}

/** When this conversation has to do something by itself, `regularCallAt` being the next call if all is well. */
export function nextCallAt(callState: CallState, ttlMs: number, regularCallAt: number): number {
  if (callState.sentAt !== null) return timesOutAt(callState, ttlMs);
  return callState.failures > 0 ? callState.retryAt : regularCallAt;
}
