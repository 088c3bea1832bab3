/** The claim machine in the states "asking" and "waiting". See machine.ts. */

import type { Answer } from "../spi/driver.ts";
import type { CallState } from "./call-state.ts";
import * as calls from "./call-state.ts";
import type {
  AnsweredEvent,
  ClaimEvent,
  ClaimSettings,
  Effect,
  HeldAnswer,
  HeldState,
  PendingState,
  Step,
  WaitingState,
} from "./state.ts";
import {
  ASK_EFFECTS,
  doneState,
  endClaim,
  extendDeadline,
  GRANT_EFFECTS,
  NO_EFFECTS,
  nextRenewalAt,
  RENEW_EFFECTS,
} from "./state.ts";

/** Release first: otherwise a new claim for the same keys would wait behind the old one. */
const RELEASE_AND_EXPIRE: readonly Effect[] = ["release", "expire"];

/** Invariant: the effect "grant" is only returned while the lease is valid by the local clock (`now < deadline`). */
export function stepPending(state: PendingState, event: ClaimEvent, now: number, settings: ClaimSettings): Step {
  if (event.type === "left") return endClaim(state, ["release"]);
  if (now >= state.deadline) {
    // the store may have dropped the entry, so no later answer counts as a grant
    if (!settings.survivesSilence || state.callState.failures > 0) return endClaim(state, RELEASE_AND_EXPIRE);
    return stepPending({ ...state, deadline: now + settings.ttlMs }, event, now, settings);
  }
  switch (event.type) {
    case "answered":
      return onPendingAnswer(state, event, now, settings);
    case "pushed":
      return onPendingPush(state, event.answer, now, settings);
    case "failed":
      if (event.call !== state.callState.calls || state.callState.sentAt === null)
        return { state, effects: NO_EFFECTS };
      return onPendingFailure(state, event.isFatal, event.random, now, settings);
    case "notified":
      return callStore(state, now);
    case "slept": {
      // count the suspension as elapsed time, then ask the store
      const shortened = {
        ...state,
        deadline: state.deadline - event.byMs,
        callState: calls.afterSuspend(state.callState),
      };
      return stepPending(shortened, { type: "notified" }, now, settings);
    }
    case "due":
      return onPendingDue(state, event.random, event.withinMs, now, settings);
    case "overstayed":
      return { state, effects: NO_EFFECTS };
  }
}

/** When a pending claim needs its next "due" event. */
export function pendingWakeAt(state: PendingState, settings: ClaimSettings): number {
  const regularCallAt = state.status === "asking" ? state.deadline : state.dueAt;
  return Math.min(state.deadline, calls.nextCallAt(state.callState, settings.ttlMs, regularCallAt));
}

function onPendingDue(
  state: PendingState,
  random: number,
  withinMs: number,
  now: number,
  settings: ClaimSettings,
): Step {
  if (now >= calls.timesOutAt(state.callState, settings.ttlMs))
    return onPendingFailure(state, false, random, now, settings);
  const isCallDue = state.callState.sentAt === null && now + withinMs >= pendingWakeAt(state, settings);
  return isCallDue ? callStore(state, now) : { state, effects: NO_EFFECTS };
}

function onPendingAnswer(state: PendingState, event: AnsweredEvent, now: number, settings: ClaimSettings): Step {
  const { answer } = event;
  const isLast = event.call === state.callState.calls;
  // the late answer to a call that has timed out: only "held" counts, other answers may be outdated
  if (!isLast && answer.state !== "held") return { state, effects: NO_EFFECTS };
  const callState = isLast ? calls.afterReply(state.callState) : state.callState;
  const callAgain = isLast && state.callState.callAgain;
  switch (answer.state) {
    case "held": {
      const deadline = extendDeadline(state, event, answer.remainingMs, settings);
      // the granted lease has already ended by the local clock: not a grant, though the store may still count it as held
      if (now >= deadline) return endClaim({ ...state, callState }, RELEASE_AND_EXPIRE);
      const dueAt = nextRenewalAt(event.sentAt, answer.remainingMs, settings);
      return grantClaim(callState, answer, deadline, dueAt, callAgain, now, settings);
    }
    case "waiting": {
      if (!settings.wait) return { state: doneState(callState.hasUnansweredClaim), effects: ["refuse", "release"] };
      const deadline = extendDeadline(state, event, answer.remainingMs, settings);
      const dueAt = Math.min(now + answer.recheckMs, nextRenewalAt(event.sentAt, answer.remainingMs, settings));
      const waiting: WaitingState = { status: "waiting", callState, deadline, dueAt };
      return callAgain ? callStore(waiting, now) : { state: waiting, effects: NO_EFFECTS };
    }
    case "none":
      return onPendingNone(state, callState, settings);
  }
}

function onPendingPush(state: PendingState, answer: Answer, now: number, settings: ClaimSettings): Step {
  if (answer.state === "none") return onPendingNone(state, state.callState, settings);
  // a push with less time left than the deadline is older than the last answer: treat it as a recheck only
  if (answer.state === "waiting" || now + answer.remainingMs < state.deadline) return callStore(state, now);
  // a push carries no send time, so it moves no deadline
  const dueAt = state.deadline - 0.9 * settings.ttlMs + settings.ttlMs / 3;
  return grantClaim(state.callState, answer, state.deadline, dueAt, false, now, settings);
}

function grantClaim(
  callState: CallState,
  { token, tokenCount }: HeldAnswer,
  deadline: number,
  dueAt: number,
  callAgain: boolean,
  now: number,
  settings: ClaimSettings,
): Step {
  const held: HeldState = {
    status: "held",
    callState,
    deadline,
    dueAt,
    token,
    tokenCount,
    grantedAtCall: callState.calls,
    unconfirmedUntil: null,
  };
  const isLeaseShort = settings.renews && deadline - now < 0.45 * settings.ttlMs;
  if (callState.sentAt !== null)
    return { state: isLeaseShort ? { ...held, callState: calls.askAgain(callState) } : held, effects: GRANT_EFFECTS };
  if (!callAgain && !isLeaseShort) return { state: held, effects: GRANT_EFFECTS };
  return { state: { ...held, callState: calls.afterSend(callState, now, false) }, effects: ["grant", "renew"] };
}

function onPendingNone(state: PendingState, callState: CallState, settings: ClaimSettings): Step {
  const hasUnansweredClaim = calls.leavesClaimUnanswered(callState);
  const effect: Effect = settings.wait ? "expire" : "refuse";
  // "none" means that the store has no trace of the claim, unless an earlier `claim` call is still in flight
  return {
    state: doneState(hasUnansweredClaim),
    effects: hasUnansweredClaim || state.status === "waiting" ? [effect, "release"] : [effect],
  };
}

function onPendingFailure(
  state: PendingState,
  isFatal: boolean,
  random: number,
  now: number,
  settings: ClaimSettings,
): Step {
  const callState = calls.afterFailure(state.callState, now, random, settings.ttlMs);
  if (isFatal || !settings.wait)
    return { state: doneState(callState.hasUnansweredClaim), effects: ["reject", "release"] };
  return { state: { ...state, callState }, effects: NO_EFFECTS };
}

/** Sends the call of this state, or notes that it must be sent when the call in flight has settled. */
function callStore(state: PendingState, now: number): Step {
  if (state.callState.sentAt !== null)
    return { state: { ...state, callState: calls.askAgain(state.callState) }, effects: NO_EFFECTS };
  const isClaimCall = state.status === "asking";
  return {
    state: { ...state, callState: calls.afterSend(state.callState, now, isClaimCall) },
    effects: isClaimCall ? ASK_EFFECTS : RENEW_EFFECTS,
  };
}
