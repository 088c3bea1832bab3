/**
 * The life of one claim in the client, as a state machine without a clock, I/O or randomness of its own.
 *
 *   asking   a `claim` call was sent (or waits for its retry); it is unknown whether the claim has a queue entry
 *   waiting  the claim has a queue entry; it is renewed like a held claim, so that it keeps the entry
 *   held     granted, and the lease has not ended by the local clock
 *   lost     was held and is no longer certainly held; the user was notified and has not released it yet
 *   over     nothing is left to do except the release
 *
 * Invariants
 * - The lease-time rule (decision 0003): the client assumes the lease until
 *   `deadline = max(deadline, sentAt + 0.9 * min(answer.ttlMs, ttlMs))`, counted from when the answered call was SENT. The
 *   store starts to count later, so with clock rates within 1 % its lease never ends first. A push does not move the
 *   deadline, and an answer that extended nothing at the store extends nothing here. Until the first answer the deadline
 *   follows from the requested ttl; if the answer has less, the answer counts. A grant whose deadline has passed when its
 *   answer arrives is not a grant: the claim is released, and a request that still wants the keys makes a new claim.
 * - The same deadline ends every state, so no id is used longer than the store may remember it. The only exception is a
 *   session claim on a store where silence does not end it (`survivesSilence`): there a passed deadline means "ask the
 *   store", and until the answer the claim is unconfirmed, which counts as not held.
 * - A failure means "unknown", never "lost": only the deadline, `none` or another token means lost.
 * - A lost claim is released only when its holder's code has ended (or its lease certainly has): a release before that would
 *   let the next holder in while this one is still stopping.
 */

import * as calls from "./call-state.ts";
import { heldWakeAt, stepHeld } from "./held-state.ts";
import { pendingWakeAt, stepPending } from "./pending-state.ts";
import type { ClaimEvent, ClaimSettings, ClaimState, Step } from "./state.ts";
import { ASK_EFFECTS, doneState, NO_EFFECTS, RELEASE_EFFECTS, RENEW_EFFECTS } from "./state.ts";

/** Starts a claim, now or after a delay. */
export function startClaim(settings: ClaimSettings, now: number, delayMs = 0): Step {
  const deadline = now + delayMs + 0.9 * settings.ttlMs;
  if (delayMs === 0)
    return { state: { status: "asking", callState: calls.firstCall(now), deadline }, effects: ASK_EFFECTS };
  return { state: { status: "asking", callState: calls.delayedCall(now + delayMs), deadline }, effects: NO_EFFECTS };
}

/**
 * Resumes a claim that another client made. Only its token is known, so it is unconfirmed until the store has answered a
 * renewal, which is sent at once; the effect "restored" reports that answer.
 */
export function resumeClaim(settings: ClaimSettings, now: number, token: bigint, tokenCount: number): Step {
  // a `claim` call of the other client may still be in flight
  const callState = { ...calls.afterSend(calls.delayedCall(now), now, false), hasUnansweredClaim: true };
  const unconfirmedUntil = now + settings.ttlMs;
  return {
    state: {
      status: "held",
      callState,
      deadline: now,
      dueAt: now,
      token,
      tokenCount,
      grantedAtCall: 0,
      unconfirmedUntil,
    },
    effects: RENEW_EFFECTS,
  };
}

/** Is the claim held, by the local clock? */
export function isHeld(state: ClaimState, now: number): boolean {
  return state.status === "held" && now < state.deadline && state.unconfirmedUntil === null;
}

/** When the claim needs a "due" event; Infinity: never. */
export function nextWakeAt(state: ClaimState, settings: ClaimSettings): number {
  switch (state.status) {
    case "asking":
    case "waiting":
      return pendingWakeAt(state, settings);
    case "held":
      return heldWakeAt(state, settings);
    case "lost":
      return state.forgottenAt;
    case "over":
      return Number.POSITIVE_INFINITY;
  }
}

/** Pure: returns the next state and the effects to perform. `now` is the client's monotonic clock. */
export function step(state: ClaimState, event: ClaimEvent, now: number, settings: ClaimSettings): Step {
  switch (state.status) {
    case "asking":
    case "waiting":
      return stepPending(state, event, now, settings);
    case "held":
      return stepHeld(state, event, now, settings);
    case "lost":
      if (event.type === "left" || (event.type === "due" && now >= state.forgottenAt)) {
        return { state: doneState(state.hasUnansweredClaim), effects: RELEASE_EFFECTS };
      }
      return { state, effects: NO_EFFECTS };
    case "over":
      return { state, effects: showsQueueEntry(event) ? RELEASE_EFFECTS : NO_EFFECTS };
  }
}

function showsQueueEntry(event: ClaimEvent): boolean {
  return (event.type === "answered" || event.type === "pushed") && event.answer.state !== "none";
}
