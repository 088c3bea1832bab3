/** What a claim's machine is made of: its terms, states, events and effects. The machine itself stands in machine.ts. */

import type { Answer, LostReason } from "../spi/driver.ts";
import type { CallState } from "./call-state.ts";
import { leavesClaimUnanswered } from "./call-state.ts";

/** What does not change in a claim's life. */
export interface ClaimSettings {
  /** The lease's length, milliseconds; for a session claim the session's. */
  readonly ttlMs: number;
  /** false: asked once. */
  readonly wait: boolean;
  /** A session claim on a store where silence does not end it. */
  readonly survivesSilence: boolean;
  /** false: nothing is renewed while held, and nothing wakes for it. */
  readonly renews: boolean;
}

/** The store has not said yet that it knows the claim. */
interface AskingState {
  readonly status: "asking";
  readonly callState: CallState;
  readonly deadline: number;
}
/** The store keeps a place for it, as far as is known. */
export interface WaitingState {
  readonly status: "waiting";
  readonly callState: CallState;
  readonly deadline: number;
  /** When the next call is due: a renewal or a recheck. */
  readonly dueAt: number;
}
/** Granted, and until `deadline` believed, by our clock. */
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
  /** If not null we are unsure whether we still hold, until an answer; when this passes we have lost. */
  readonly unconfirmedUntil: number | null;
}
/** Its holder has been told; it is released when its body has ended. */
interface LostState {
  readonly status: "lost";
  readonly reason: LostReason;
  /** When the store has forgotten the claim in any case. */
  readonly forgottenAt: number;
  readonly hasUnansweredClaim: boolean;
}
/** Nobody here wants it any more. */
export interface DoneState {
  readonly status: "over";
  /** A `claim` call may still be on its way to the store. */
  readonly hasUnansweredClaim: boolean;
}

/** Not granted yet. */
export type PendingState = AskingState | WaitingState;
/** A claim is in one of these; only step() in machine.ts changes it. */
export type ClaimState = AskingState | WaitingState | HeldState | LostState | DoneState;

/** What happens to a claim. Times in milliseconds, on the scale of step()'s `now`. */
export type ClaimEvent =
  /** The call with that number, sent then, was answered. */
  | { readonly type: "answered"; readonly call: number; readonly sentAt: number; readonly answer: Answer }
  | { readonly type: "failed"; readonly call: number; readonly isFatal: boolean; readonly random: number }
  | { readonly type: "pushed"; readonly answer: Answer }
  /** The store said that something may have changed. */
  | { readonly type: "notified" }
  /** nextWakeAt() has come, or comes within withinMs: then a call may ride along with others. */
  | { readonly type: "due"; readonly random: number; readonly withinMs: number }
  /** The machine slept that long without our clock noticing. */
  | { readonly type: "slept"; readonly byMs: number }
  /** The holder is to be given up although the lease stands. */
  | { readonly type: "overstayed"; readonly reason: LostReason }
  /** Released, aborted, or waited too long. */
  | { readonly type: "left" };

/** An answer to a call of ours. */
export type AnsweredEvent = Extract<ClaimEvent, { type: "answered" }>;
/** The answer that the claim is granted. */
export type HeldAnswer = Extract<Answer, { state: "held" }>;

/**
 * What the shell has to do, in order. ask, renew: send that call, number `callState.commandCount`. refuse: busy (`wait: false`).
 * expire: the place was lost; a new claim may be made. reject: the store failed for good. lose: tell the holder.
 * jeopardy, restored: a renewal failed; one succeeded again. release: tell the store, until it has answered.
 */
export type Effect =
  | "ask"
  | "renew"
  | "grant"
  | "refuse"
  | "expire"
  | "reject"
  | "lose"
  | "jeopardy"
  | "restored"
  | "release";

/** What an event brought about. */
export interface Step {
  readonly state: ClaimState;
  readonly effects: readonly Effect[];
}

// shared, so that a step on the fast path allocates none
export const NO_EFFECTS: readonly Effect[] = [];
export const ASK_EFFECTS: readonly Effect[] = ["ask"];
export const RENEW_EFFECTS: readonly Effect[] = ["renew"];
export const GRANT_EFFECTS: readonly Effect[] = ["grant"];
export const RELEASE_EFFECTS: readonly Effect[] = ["release"];

/** The state after the end. */
export function doneState(hasUnansweredClaim: boolean): DoneState {
  return { status: "over", hasUnansweredClaim };
}

/** The claim is over. */
export function endClaim(state: PendingState | HeldState, effects: readonly Effect[]): Step {
  return { state: doneState(leavesClaimUnanswered(state.callState)), effects };
}

/**
 * The lease-time rule (design A.18). Clock rates may differ by 1 %; the other 9 % is time for the holder to stop. A call
 * sent before the machine slept extends nothing: the time since is longer than our clock says.
 */
export function extendDeadline(
  state: PendingState | HeldState,
  event: AnsweredEvent,
  remainingMs: number,
  settings: ClaimSettings,
): number {
  const boundedMs = Math.min(remainingMs, settings.ttlMs);
  // until the first answer the deadline is what was asked for, and the store may have given less
  const isFirst = state.status === "asking" && !settings.survivesSilence;
  if (event.call <= state.callState.lastCallBeforeSuspend)
    return isFirst ? state.deadline - 0.9 * (settings.ttlMs - boundedMs) : state.deadline;
  const deadline = event.sentAt + 0.9 * boundedMs;
  return isFirst ? deadline : Math.max(state.deadline, deadline);
}

/**
 * A third of the lease after it began; it began before the send if the answer says that less is left. Never at once, so
 * that a store which does not lengthen a lease is not asked in a busy loop.
 */
export function nextRenewalAt(sentAt: number, remainingMs: number, settings: ClaimSettings): number {
  const boundedMs = Math.min(remainingMs, settings.ttlMs);
  return Math.max(
    sentAt - (settings.ttlMs - boundedMs) + settings.ttlMs / 3,
    sentAt + Math.max(boundedMs / 6, settings.ttlMs / 200),
  );
}
