/** The claim machine in the state "held". See machine.ts. */

import type { LostReason } from "../errors.ts";
import * as calls from "./call-state.ts";
import type { AnsweredEvent, ClaimEvent, ClaimSettings, Effect, HeldState, Step } from "./state.ts";
import { endClaim, extendDeadline, NO_EFFECTS, nextRenewalAt, RELEASE_EFFECTS, RENEW_EFFECTS } from "./state.ts";

export function stepHeld(state: HeldState, event: ClaimEvent, now: number, settings: ClaimSettings): Step {
  if (event.type === "left") return endClaim(state, RELEASE_EFFECTS);
  if (event.type === "overstayed") return loseClaim(state, event.reason, now, settings);
  if (now >= (state.unconfirmedUntil ?? state.deadline)) {
    if (state.unconfirmedUntil !== null || !settings.survivesSilence) return loseClaim(state, "expired", now, settings);
    // silence does not end this claim: ask the store, and count it as not held until the answer
    return requestRenewal({ ...state, unconfirmedUntil: now + settings.ttlMs }, now);
  }
  switch (event.type) {
    case "answered":
      return onHeldAnswer(state, event, now, settings);
    case "pushed":
      if (event.answer.state === "none") return loseClaim(state, event.answer.reason ?? "unknown", now, settings);
      return event.answer.state === "waiting" || event.answer.token !== state.token
        ? requestRenewal(state, now)
        : { state, effects: NO_EFFECTS };
    case "failed":
      if (event.call !== state.callState.calls || state.callState.sentAt === null)
        return { state, effects: NO_EFFECTS };
      return onHeldFailure(state, event.random, now, settings);
    case "notified":
      return requestRenewal(state, now);
    case "slept":
      return onSuspend(state, event.byMs, now, settings);
    case "due":
      return onHeldDue(state, event.random, event.withinMs, now, settings);
  }
}

/** When a held claim needs its next "due" event. */
export function heldWakeAt(state: HeldState, settings: ClaimSettings): number {
  const regularCallAt = settings.renews ? state.dueAt : Number.POSITIVE_INFINITY;
  const nextCallAt = calls.nextCallAt(state.callState, settings.ttlMs, regularCallAt);
  // renew: false promises that there is no timer; the loss is detected when the lock is next used
  if (!settings.renews && nextCallAt === Number.POSITIVE_INFINITY) return nextCallAt;
  return Math.min(state.unconfirmedUntil ?? state.deadline, nextCallAt);
}

function onHeldDue(state: HeldState, random: number, withinMs: number, now: number, settings: ClaimSettings): Step {
  if (now >= calls.timesOutAt(state.callState, settings.ttlMs)) return onHeldFailure(state, random, now, settings);
  const isCallDue = state.callState.sentAt === null && now + withinMs >= heldWakeAt(state, settings);
  return isCallDue ? requestRenewal(state, now) : { state, effects: NO_EFFECTS };
}

function onHeldAnswer(state: HeldState, event: AnsweredEvent, now: number, settings: ClaimSettings): Step {
  const { answer } = event;
  const isLast = event.call === state.callState.calls;
  if (event.call <= state.callState.lastCallBeforeSuspend && answer.state !== "none") {
    // the age of this answer is unknown; onSuspend() has requested another call
    return isLast && state.callState.callAgain
      ? { state: afterRenewalSent(state, now), effects: RENEW_EFFECTS }
      : { state, effects: NO_EFFECTS };
  }
  if (answer.state === "held" && answer.token === state.token) {
    const deadline = extendDeadline(state, event, answer.remainingMs, settings);
    if (!isLast) return { state: { ...state, deadline }, effects: NO_EFFECTS };
    // only possible while unconfirmed: the confirmed lease has already ended by the local clock, so ask again
    if (now >= deadline)
      return requestRenewal({ ...state, deadline, callState: calls.afterLateReply(state.callState) }, now);
    const dueAt = nextRenewalAt(event.sentAt, answer.remainingMs, settings);
    const { token, tokenCount, grantedAtCall, callState } = state;
    const restored: readonly Effect[] = callState.failures > 0 ? ["restored"] : NO_EFFECTS;
    const held: HeldState = {
      status: "held",
      callState: calls.afterReply(callState),
      deadline,
      dueAt,
      token,
      tokenCount,
      grantedAtCall,
      unconfirmedUntil: null,
    };
    if (!callState.callAgain) return { state: held, effects: restored };
    return { state: afterRenewalSent(held, now), effects: [...restored, "renew"] };
  }
  if (!isLast) return { state, effects: NO_EFFECTS };
  const settled: HeldState = { ...state, callState: calls.afterReply(state.callState) };
  if (event.call <= state.grantedAtCall && answer.state === "waiting") {
    // the call was sent before the grant was known, so its answer may be older than the grant
    return state.callState.callAgain ? requestRenewal(settled, now) : { state: settled, effects: NO_EFFECTS };
  }
  return loseClaim(settled, answer.state === "none" ? (answer.reason ?? "unknown") : "unknown", now, settings);
}

function onHeldFailure(state: HeldState, random: number, now: number, settings: ClaimSettings): Step {
  const callState = calls.afterFailure(state.callState, now, random, settings.ttlMs);
  return { state: { ...state, callState }, effects: state.callState.failures === 0 ? ["jeopardy"] : NO_EFFECTS };
}

function requestRenewal(state: HeldState, now: number): Step {
  if (state.callState.sentAt !== null)
    return { state: { ...state, callState: calls.askAgain(state.callState) }, effects: NO_EFFECTS };
  return { state: afterRenewalSent(state, now), effects: RENEW_EFFECTS };
}

function afterRenewalSent(state: HeldState, now: number): HeldState {
  return { ...state, callState: calls.afterSend(state.callState, now, false) };
}

/**
 * Counts the suspension as elapsed time. If that ends the lease, the claim is unconfirmed until the store has answered: not
 * lost yet (decision 0010), since it may be a false alarm (the wall clock was set).
 */
function onSuspend(state: HeldState, byMs: number, now: number, settings: ClaimSettings): Step {
  const deadline = state.deadline - byMs;
  const callState = calls.afterSuspend(state.callState);
  if (now < deadline || state.unconfirmedUntil !== null) return requestRenewal({ ...state, callState, deadline }, now);
  const unconfirmedUntil = settings.survivesSilence
    ? now + settings.ttlMs
    : Math.min(state.deadline, now + settings.ttlMs / 6);
  return requestRenewal({ ...state, callState, deadline, unconfirmedUntil }, now);
}

function loseClaim(state: HeldState, reason: LostReason, now: number, settings: ClaimSettings): Step {
  const hasUnansweredClaim = calls.leavesClaimUnanswered(state.callState);
  return {
    state: { status: "lost", reason, forgottenAt: now + settings.ttlMs, hasUnansweredClaim },
    effects: ["lose"],
  };
}
