/**
 * One claim's life on the client, as a state machine without time, I/O or randomness of its own.
 *
 *   asking   a `claim` was sent (or waits for its retry); we do not know whether we have a place
 *   waiting  we have a place in line; renewed like a held claim, so that it stays ours
 *   held     granted, and our clock says that the lease stands
 *   lost     we held it and are no longer sure; the user was told and is still leaving
 *   over     nothing is left to do but a release
 *
 * Invariants
 * - The lease-time rule: belief ends at `deadline = max(deadline, sentAt + 0.9 * min(answer.ttlMs, ttlMs))`, counted
 *   from when the answered call was SENT. The store counts later, so with clock rates within 1 % it never ends first. A
 *   push moves nothing; an answer that extended nothing extends nothing here. Until the first answer the deadline is that
 *   of what was asked for; the answer may say less, and then counts. A grant whose deadline has passed when it is
 *   answered is none: it is released, and whoever wants the keys makes a new claim.
 * - The same deadline ends every state, so no id outlives what the store may remember of it. The one exception is a
 *   session claim on a store where silence keeps it (`endures`): there a passed deadline means "ask", and until the
 *   answer we are in doubt, which counts as not held.
 * - A failure is "unknown", never "lost": only the deadline, `none`, or another token means lost.
 * - A lost claim is released only when its body has ended (or its lease certainly has): earlier, the next holder would
 *   enter while this one is still stopping.
 */

import * as calls from "./call-state.ts";
import { heldWakeAt, stepHeld } from "./held-state.ts";
import { pendingWakeAt, stepPending } from "./pending-state.ts";
import type { ClaimEvent, ClaimSettings, ClaimState, Step } from "./state.ts";
import { ASK_EFFECTS, doneState, NO_EFFECTS, RELEASE_EFFECTS, RENEW_EFFECTS } from "./state.ts";

/** A claim is made now, or after a delay. */
export function startClaim(settings: ClaimSettings, now: number, delayMs = 0): Step {
  const deadline = now + delayMs + 0.9 * settings.ttlMs;
  if (delayMs === 0)
    return { state: { status: "asking", callState: calls.firstCall(now), deadline }, effects: ASK_EFFECTS };
  return { state: { status: "asking", callState: calls.delayedCall(now + delayMs), deadline }, effects: NO_EFFECTS };
}

/**
 * A claim is taken up that another client made: nothing is known of it but its token, so it is asked about at once and
 * is in doubt until then; the effect "restored" tells of the answer.
 */
export function resumeClaim(settings: ClaimSettings, now: number, token: bigint, tokenCount: number): Step {
  // for all we know a `claim` call of the other client is still on its way
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

/** Do we hold it, as far as our own clock can tell? */
export function isHeld(state: ClaimState, now: number): boolean {
  return state.status === "held" && now < state.deadline && state.unconfirmedUntil === null;
}

/** When the claim wants a "due" event; Infinity: never. */
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

/** Pure: the next state and what is to be done. `now` is the client's monotonic clock. */
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
