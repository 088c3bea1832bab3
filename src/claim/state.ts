/**
 * The settings, states, events and effects of the claim machine, which is in machine.ts, and the state of a claim's
 * calls to the store.
 */

import type { LostReason } from "../errors.ts";
import type { Answer } from "../spi/driver.ts";
import { backoffMs } from "../util/backoff.ts";
import { ATTEMPTS_PER_LEASE } from "./lease-shares.ts";

/** The settings that stay the same as long as a claim lives. */
export interface ClaimSettings {
  /** The length of the lease in milliseconds; for a session claim that of the session. */
  readonly ttlMs: number;
  /** false: the claim is tried once. */
  readonly wait: boolean;
  /** A session claim on a store where silence does not end it. */
  readonly survivesSilence: boolean;
  /** false: a held claim is not renewed and has no timer. */
  readonly renews: boolean;
}

/**
 * The calls of one claim to the store: the call in flight, its timeout, and the next retry.
 *
 * Invariant: a claim has at most one call in flight that has not timed out. A recheck push that comes meanwhile is not
 * dropped: another call follows as soon as the current one settles, since its answer may be older than the push.
 */
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
  /** The epoch (see AnsweredEvent) of the latest call that was answered; -1: none was. */
  readonly answeredEpoch: number;
}

/** The store has not confirmed yet that it has the claim. */
interface AskingState {
  readonly status: "asking";
  readonly callState: CallState;
  readonly deadline: number;
  readonly isWanted: boolean;
}
/** The store has queued the claim. */
export interface WaitingState {
  readonly status: "waiting";
  readonly callState: CallState;
  readonly deadline: number;
  /** As of a held claim: a recall may overtake the grant that it refers to. */
  readonly isWanted: boolean;
  /** When the next call is due: a renewal or a recheck. */
  readonly dueAt: number;
}
/** Granted; counts as held until `deadline` by the local clock. */
export interface HeldState {
  readonly status: "held";
  readonly callState: CallState;
  readonly deadline: number;
  /** When the next renewal is due. */
  readonly dueAt: number;
  readonly token: bigint;
  readonly tokenCount: number;
  /** The last call sent before the grant was known: its answer may be older than the grant. */
  readonly grantedAtCall: number;
  /**
   * Not null: the claim is doubtful, since a call for it failed or the store's clock stepped. Only the answer to a call
   * that was sent in this epoch or a later one ends that.
   */
  readonly doubtfulSince: number | null;
  /** Not null: the claim is unconfirmed until the store answers, and lost at this time without an answer. */
  readonly unconfirmedUntil: number | null;
  /** Another claim waits for this one, as the store has said. */
  readonly isWanted: boolean;
  readonly transfer: Transfer;
}
/**
 * "detaching": another client may have the claim, and the store may not recall it any more, so that no other request
 * here may use it. "shortening": the same, and its lease is being shortened, which a renewal would undo. Neither is
 * ever reset: the answer may be lost.
 */
type Transfer = "none" | "detaching" | "shortening";

/** The holder was notified; the claim is released when the holder's code has ended. */
interface LostState {
  readonly status: "lost";
  readonly reason: LostReason;
  /** The time at which the store has certainly dropped the claim. */
  readonly forgottenAt: number;
  readonly hasUnansweredClaim: boolean;
}
/** The claim has ended or was abandoned. */
export interface DoneState {
  readonly status: "done";
  /** A `claim` call may still arrive at the store. */
  readonly hasUnansweredClaim: boolean;
  /** Another client has it now: a late answer about it must not release it. */
  readonly isTransferred: boolean;
}

/** Not granted yet. */
export type PendingState = AskingState | WaitingState;
/** The state of a claim; only step() in machine.ts changes it. */
export type ClaimState = AskingState | WaitingState | HeldState | LostState | DoneState;

/** The inputs of the machine. Times are in milliseconds, on the scale of step()'s `now`. */
export type ClaimEvent =
  | AnsweredEvent
  | { readonly type: "failed"; readonly call: number; readonly isFatal: boolean; readonly random: number }
  | { readonly type: "pushed"; readonly answer: Answer }
  /** A recheck push: the answer may have changed. */
  | { readonly type: "recheck" }
  /** A recall push: another claim waits for this one. */
  | { readonly type: "recalled" }
  /**
   * The store's clock stepped, so that the lease of an earlier answer may have ended. The epoch is that of calls sent
   * from now on.
   */
  | { readonly type: "clockStepped"; readonly epoch: number }
  /** A detach was sent, with or without a shorter lease. */
  | { readonly type: "detaching"; readonly isShortening: boolean }
  /** Another client has the claim now. */
  | { readonly type: "transferred" }
  /** The time of nextWakeAt() has come, or will within withinMs: then the call may join a batch. */
  | { readonly type: "due"; readonly random: number; readonly withinMs: number }
  /** This machine was suspended for byMs, which the local clock did not count. */
  | { readonly type: "suspended"; readonly byMs: number }
  /** The holder has exceeded maxHold: the claim counts as lost although its lease has not ended. */
  | { readonly type: "maxHoldExceeded" }
  /** The claim was released or aborted, or its wait has timed out. */
  | { readonly type: "released" };

/** The call with this number, sent at `sentAt`, was answered. */
export interface AnsweredEvent {
  readonly type: "answered";
  readonly call: number;
  readonly sentAt: number;
  /**
   * The epoch in which the call was sent. Each break of the store's connection and each step of its clock begins
   * another: an answer to a call that was sent before may be that of a store that has lost the claim since.
   */
  readonly epoch: number;
  readonly answer: Answer;
}

/** The answer that the claim is granted. */
export type HeldAnswer = Extract<Answer, { state: "held" }>;

/**
 * What the engine has to do, in order. ask, renew: send a `claim` or `renew` call with the number `callState.calls`.
 * grant: hand the lock to the waiter. wait: the first call has ended, and the claim is not granted: the store has
 * queued it, or the call is repeated. refuse: the keys are busy (`wait: false`). expire: the queue entry was lost; a
 * new claim may be made. reject: the store failed permanently. lose: report the loss to the holder. jeopardy, restored:
 * the claim has become doubtful; it is sure again. recall: another claim waits for this one, which is held. release:
 * send a release until the store has answered; only with the state "done".
 */
export type Effect =
  | "ask"
  | "renew"
  | "grant"
  | "wait"
  | "refuse"
  | "expire"
  | "reject"
  | "lose"
  | "jeopardy"
  | "restored"
  | "recall"
  | "release";

/** The result of an event. */
export interface Step {
  readonly state: ClaimState;
  readonly effects: readonly Effect[];
}

/** The longest bound of the delay before a retry. */
const MAX_RETRY_MS = 2_000;

// shared, so that a step on the fast path allocates no array
export const NO_EFFECTS: readonly Effect[] = [];
export const ASK_EFFECTS: readonly Effect[] = ["ask"];
export const RENEW_EFFECTS: readonly Effect[] = ["renew"];
export const GRANT_EFFECTS: readonly Effect[] = ["grant"];
export const RELEASE_EFFECTS: readonly Effect[] = ["release"];

/** The final state. */
export function doneState(hasUnansweredClaim: boolean): DoneState {
  return { status: "done", hasUnansweredClaim, isTransferred: false };
}

/** Ends the claim. */
export function endClaim(state: PendingState | HeldState, effects: readonly Effect[]): Step {
  return { state: doneState(leavesClaimUnanswered(state.callState)), effects };
}

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
    answeredEpoch: -1,
  };
}

/** The state before a first call that is delayed. */
export function delayedCall(until: number): CallState {
  return { ...firstCall(0), calls: 0, sentAt: null, isClaimCall: false, failures: 1, retryAt: until };
}

/** The state after a call is sent now. */
export function afterSend(callState: CallState, now: number, isClaimCall: boolean): CallState {
  return { ...callState, calls: callState.calls + 1, sentAt: now, isClaimCall, callAgain: false };
}

/** The state after the call in flight, sent in this epoch, has been answered. */
export function afterReply(callState: CallState, epoch: number): CallState {
  const settled = { sentAt: null, isClaimCall: false, callAgain: false, failures: 0, retryAt: 0 };
  return { ...callState, ...settled, answeredEpoch: Math.max(callState.answeredEpoch, epoch) };
}

/** The state after an answer that came too late to confirm the lease: earlier failures still count. */
export function afterLateReply(callState: CallState, epoch: number): CallState {
  return { ...afterReply(callState, epoch), failures: callState.failures };
}

/** The state after an answer to an earlier call than the last one. */
export function afterEarlierReply(callState: CallState, epoch: number): CallState {
  return { ...callState, answeredEpoch: Math.max(callState.answeredEpoch, epoch) };
}

/** The state after the call in flight failed or timed out: its outcome is unknown. */
export function afterFailure(callState: CallState, now: number, random: number, ttlMs: number): CallState {
  const failures = callState.failures + 1;
  const retryAt =
    now + (callState.callAgain ? 0 : backoffMs(failures, random, Math.min(MAX_RETRY_MS, ttlMs / ATTEMPTS_PER_LEASE)));
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

/** When the call in flight times out. */
export function timesOutAt(callState: CallState, ttlMs: number): number {
  return callState.sentAt === null ? Number.POSITIVE_INFINITY : callState.sentAt + ttlMs / ATTEMPTS_PER_LEASE;
}

/** When the next timeout, retry or call is due; `regularCallAt`: when the next call is due without a failure. */
export function nextCallAt(callState: CallState, ttlMs: number, regularCallAt: number): number {
  if (callState.sentAt !== null) return timesOutAt(callState, ttlMs);
  return callState.failures > 0 ? callState.retryAt : regularCallAt;
}
