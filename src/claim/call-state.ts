/**
 * The calls of one claim to the store: the call in flight, its timeout, and the next retry.
 *
 * Invariant: a claim has at most one call in flight that has not timed out. A recheck push that comes meanwhile is not
 * dropped: another call follows as soon as the current one settles, since its answer may be older than the push.
 */

import { backoffMs } from "../util/backoff.ts";

export interface CallState {
  /** How many calls were sent; also the number of the last one. */
  readonly calls: number;
  /** When the call in flight was sent; null if none is in flight. */
  readonly sentAt: number | null;
  /** Is the call in flight a `claim` (else a `renew`)? */
  readonly isClaimCall: boolean;
  /** The answer may have changed since the call in flight was sent: call again when it settles. */
  readonly callAgain: boolean;
  /** The number of consecutive failures. */
  readonly failures: number;
  /** When to call again after a failure. */
  readonly retryAt: number;
  /** An earlier `claim` call was never answered and may still arrive at the store. */
  readonly hasUnansweredClaim: boolean;
  /** Calls up to this number were sent before a suspension, so the local clock cannot tell the age of their answers. */
  readonly lastCallBeforeSuspend: number;
}

const MAX_RETRY_MS = 2_000;

/** The state after a first `claim` call is sent now. */
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

/** The state before a first call that is delayed. */
export function delayedCall(until: number): CallState {
  return { ...firstCall(0), calls: 0, sentAt: null, isClaimCall: false, failures: 1, retryAt: until };
}

/** The state after a call is sent now. */
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

/** The state after the call in flight has been answered, or a push has made its answer known. */
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

/** The state after an answer that came too late to confirm the lease: earlier failures still count. */
export function afterLateReply(callState: CallState): CallState {
  return { ...afterReply(callState), failures: callState.failures };
}

/** The state after the call in flight failed or timed out: its outcome is unknown. */
export function afterFailure(callState: CallState, now: number, random: number, ttlMs: number): CallState {
  const failures = callState.failures + 1;
  const retryAt = now + (callState.callAgain ? 0 : backoffMs(failures, random, Math.min(MAX_RETRY_MS, ttlMs / 6)));
  const hasUnansweredClaim = callState.hasUnansweredClaim || callState.isClaimCall;
  return { ...callState, sentAt: null, isClaimCall: false, callAgain: false, failures, retryAt, hasUnansweredClaim };
}

/** The state after a suspension that the local clock did not count. */
export function afterSuspend(callState: CallState): CallState {
  return { ...callState, lastCallBeforeSuspend: callState.calls };
}

/** Notes a recheck that came while a call is in flight. */
export function askAgain(callState: CallState): CallState {
  return { ...callState, callAgain: true };
}

/** If the claim ended now, could a `claim` call of it still arrive at the store? */
export function leavesClaimUnanswered(callState: CallState): boolean {
  return callState.hasUnansweredClaim || (callState.sentAt !== null && callState.isClaimCall);
}

/** When the call in flight times out: at least four attempts fit between a renewal's due time and the lease's end. */
export function timesOutAt(callState: CallState, ttlMs: number): number {
  return callState.sentAt === null ? Number.POSITIVE_INFINITY : callState.sentAt + ttlMs / 6;
}

/** When the next timeout, retry or call is due; `regularCallAt`: when the next call is due without a failure. */
export function nextCallAt(callState: CallState, ttlMs: number, regularCallAt: number): number {
  if (callState.sentAt !== null) return timesOutAt(callState, ttlMs);
  return callState.failures > 0 ? callState.retryAt : regularCallAt;
}
