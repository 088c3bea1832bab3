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

import type { ClaimEvent, ClaimState, Step, Terms } from "./claim-state.ts";
import { ASK, NOTHING, over, RELEASE, RENEW } from "./claim-state.ts";
import { heldWakesAt, whileHeld } from "./held.ts";
import { pendingWakesAt, whilePending } from "./pending.ts";
import * as talking from "./talk.ts";

/** A claim is made now, or after a delay. */
export function begin(terms: Terms, now: number, delayMs = 0): Step {
  const deadline = now + delayMs + 0.9 * terms.ttlMs;
  if (delayMs === 0) return { state: { at: "asking", talk: talking.opened(now), deadline }, effects: ASK };
  return { state: { at: "asking", talk: talking.postponed(now + delayMs), deadline }, effects: NOTHING };
}

/**
 * A claim is taken up that another client made: nothing is known of it but its token, so it is asked about at once and
 * is in doubt until then; the effect "restored" tells of the answer.
 */
export function adopt(terms: Terms, now: number, token: bigint, tokens: number): Step {
  // for all we know a `claim` call of the other client is still on its way
  const talk = { ...talking.sent(talking.postponed(now), now, false), unanswered: true };
  const doubtUntil = now + terms.ttlMs;
  return {
    state: { at: "held", talk, deadline: now, dueAt: now, token, tokens, knownAt: 0, doubtUntil },
    effects: RENEW,
  };
}

/** Do we hold it, as far as our own clock can tell? */
export function believes(state: ClaimState, now: number): boolean {
  return state.at === "held" && now < state.deadline && state.doubtUntil === null;
}

/** When the claim wants a "due" event; Infinity: never. */
export function wakeAt(state: ClaimState, terms: Terms): number {
  switch (state.at) {
    case "asking":
    case "waiting":
      return pendingWakesAt(state, terms);
    case "held":
      return heldWakesAt(state, terms);
    case "lost":
      return state.forgetAt;
    case "over":
      return Number.POSITIVE_INFINITY;
  }
}

/** Pure: the next state and what is to be done. `now` is the client's monotonic clock. */
export function step(state: ClaimState, event: ClaimEvent, now: number, terms: Terms): Step {
  switch (state.at) {
    case "asking":
    case "waiting":
      return whilePending(state, event, now, terms);
    case "held":
      return whileHeld(state, event, now, terms);
    case "lost":
      if (event.type === "left" || (event.type === "due" && now >= state.forgetAt)) {
        return { state: over(state.unanswered), effects: RELEASE };
      }
      return { state, effects: NOTHING };
    case "over":
      return { state, effects: showsPlace(event) ? RELEASE : NOTHING };
  }
}

function showsPlace(event: ClaimEvent): boolean {
  return (event.type === "answered" || event.type === "pushed") && event.answer.state !== "none";
}
