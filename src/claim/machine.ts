/**
 * The life of one claim in the client, as a state machine without a clock, I/O or randomness of its own.
 *
 *   asking   a `claim` call was sent (or waits for its retry); it is unknown whether the claim has a queue entry
 *   waiting  the claim has a queue entry; it is renewed like a held claim, so that it keeps the entry
 *   held     granted, and the lease has not ended by the local clock
 *   lost     was held and is no longer certainly held; the user was notified and has not released it yet
 *   done     nothing is left to do except the release
 *
 * How sure the client is of a held claim:
 *
 *   sure         it may be given to another request of this client, if the store has answered a call for it that was
 *                sent in the present epoch and enough of its lease is left (isReusable)
 *   doubtful     a call failed, or the store's clock stepped: it counts as held until its deadline, but no other
 *                request gets it. The effect "jeopardy" reports the beginning, "restored" the answer that ends it
 *   unconfirmed  its lease has ended by the local clock, which may be a false alarm: it counts as not held until the
 *                store has answered
 *
 * Invariants
 * - The lease-time rule (decision 0003): the client assumes the lease until
 *   `deadline = max(deadline, sentAt + 0.9 * min(answer.remainingMs, ttlMs))`, counted from when the answered call was
 *   SENT. The store starts to count later, so with clock rates within 1 % its lease never ends first. A push does not
 *   move the deadline, and an answer that extended nothing at the store extends nothing here. Until the first answer
 *   the deadline follows from the requested ttl; if the answer has less, the answer counts. A grant whose deadline has
 *   passed when its answer arrives is not a grant: the claim is released, and a request that still wants the keys makes
 *   a new claim.
 * - The same deadline ends every state, so no id is used longer than the store may remember it. The only exception is a
 *   session claim on a store where silence does not end it (`survivesSilence`): there a passed deadline means "ask the
 *   store", and until the answer the claim is unconfirmed, which counts as not held.
 * - A failure means "unknown", never "lost": only the deadline, `none` or another token means lost.
 * - A lost claim is released only when its holder's code has ended (or its lease certainly has): a release before that
 *   would let the next holder in while this one is still stopping.
 */

import type { LostReason } from "../errors.ts";
import type { Answer } from "../spi/driver.ts";
import { believedUntil, extendDeadline, nextRenewalAt } from "./lease-deadline.ts";
import { ATTEMPTS_PER_LEASE, BELIEVED_SHARE, RENEWALS_PER_LEASE, SHORT_LEASE_SHARE } from "./lease-shares.ts";
import type {
  AnsweredEvent,
  ClaimEvent,
  ClaimSettings,
  ClaimState,
  Effect,
  HeldAnswer,
  HeldState,
  PendingState,
  Step,
  WaitingState,
} from "./state.ts";
import {
  ASK_EFFECTS,
  afterEarlierReply,
  afterFailure,
  afterLateReply,
  afterReply,
  afterSend,
  afterSuspend,
  askAgain,
  delayedCall,
  doneState,
  endClaim,
  firstCall,
  GRANT_EFFECTS,
  leavesClaimUnanswered,
  NO_EFFECTS,
  nextCallAt,
  RELEASE_EFFECTS,
  RENEW_EFFECTS,
  timesOutAt,
} from "./state.ts";

/** Starts a claim, now or after a delay. */
export function startClaim(settings: ClaimSettings, now: number, delayMs = 0): Step {
  const deadline = believedUntil(now + delayMs, settings.ttlMs, settings.ttlMs);
  const callState = delayMs === 0 ? firstCall(now) : delayedCall(now + delayMs);
  return {
    state: { status: "asking", callState, deadline, isWanted: false },
    effects: delayMs === 0 ? ASK_EFFECTS : NO_EFFECTS,
  };
}

/** Is the claim held, by the local clock? */
export function isHeld(state: ClaimState, now: number): boolean {
  return state.status === "held" && now < state.deadline && state.unconfirmedUntil === null;
}

/**
 * Has the store answered a call for the held claim that was sent in this epoch, the present one? If not, it must not be
 * given to another request: a store that came back empty, or whose clock stepped, may have granted the lock to another
 * client.
 */
export function isVerified(state: ClaimState, epoch: number): boolean {
  return state.status === "held" && state.callState.answeredEpoch === epoch;
}

/** May the claim be given to another request of this client? Enough of the lease must be left for it. */
export function isReusable(state: ClaimState, now: number, epoch: number, settings: ClaimSettings): boolean {
  if (state.status !== "held" || state.callState.failures > 0 || state.transfer !== "none") return false;
  return state.deadline - now > SHORT_LEASE_SHARE * settings.ttlMs && isVerified(state, epoch);
}

/** Does another claim wait for this one? */
export function isWanted(state: ClaimState): boolean {
  return state.status !== "lost" && state.status !== "done" && state.isWanted;
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
    case "done":
      return Number.POSITIVE_INFINITY;
  }
}

/** Pure: returns the next state and the effects to perform. `now` is the client's monotonic clock. */
export function step(state: ClaimState, event: ClaimEvent, now: number, settings: ClaimSettings): Step {
  if (event.type === "transferred") return { state: { ...doneState(false), isTransferred: true }, effects: NO_EFFECTS };
  switch (state.status) {
    case "asking":
    case "waiting":
      return stepPending(state, event, now, settings);
    case "held":
      return stepHeld(state, event, now, settings);
    case "lost":
      if (event.type === "released" || (event.type === "due" && now >= state.forgottenAt)) {
        return { state: doneState(state.hasUnansweredClaim), effects: RELEASE_EFFECTS };
      }
      return { state, effects: NO_EFFECTS };
    case "done":
      return { state, effects: showsQueueEntry(event) && !state.isTransferred ? RELEASE_EFFECTS : NO_EFFECTS };
  }
}

type LiveEvent = Exclude<ClaimEvent, { type: "transferred" }>;

function showsQueueEntry(event: ClaimEvent): boolean {
  return (event.type === "answered" || event.type === "pushed") && event.answer.state !== "none";
}

// Not granted yet: asking, waiting.

/** Release first: otherwise a new claim for the same keys would wait behind the old one. */
const RELEASE_AND_EXPIRE: readonly Effect[] = ["release", "expire"];

/** Invariant: the effect "grant" is only returned while the lease is valid by the local clock (`now < deadline`). */
function stepPending(state: PendingState, event: LiveEvent, now: number, settings: ClaimSettings): Step {
  if (event.type === "released") return endClaim(state, ["release"]);
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
    case "recheck":
    case "clockStepped":
      return callStore(state, now);
    case "recalled":
      return { state: { ...state, isWanted: true }, effects: NO_EFFECTS };
    case "suspended": {
      // count the suspension as elapsed time, then ask the store
      const shortened = {
        ...state,
        deadline: state.deadline - event.byMs,
        callState: afterSuspend(state.callState),
      };
      return stepPending(shortened, { type: "recheck" }, now, settings);
    }
    case "due":
      return onPendingDue(state, event.random, event.withinMs, now, settings);
    case "maxHoldExceeded":
    case "detaching":
      return { state, effects: NO_EFFECTS };
  }
}

/** When a pending claim needs its next "due" event. */
function pendingWakeAt(state: PendingState, settings: ClaimSettings): number {
  const regularCallAt = state.status === "asking" ? state.deadline : state.dueAt;
  return Math.min(state.deadline, nextCallAt(state.callState, settings.ttlMs, regularCallAt));
}

function onPendingDue(
  state: PendingState,
  random: number,
  withinMs: number,
  now: number,
  settings: ClaimSettings,
): Step {
  if (now >= timesOutAt(state.callState, settings.ttlMs)) return onPendingFailure(state, false, random, now, settings);
  const isCallDue = state.callState.sentAt === null && now + withinMs >= pendingWakeAt(state, settings);
  return isCallDue ? callStore(state, now) : { state, effects: NO_EFFECTS };
}

function onPendingAnswer(state: PendingState, event: AnsweredEvent, now: number, settings: ClaimSettings): Step {
  const { answer } = event;
  const isLast = event.call === state.callState.calls;
  // the late answer to a call that has timed out: only "held" counts, other answers may be outdated
  if (!isLast && answer.state !== "held") return { state, effects: NO_EFFECTS };
  const callState = isLast ? afterReply(state.callState, event.epoch) : afterEarlierReply(state.callState, event.epoch);
  const callAgain = isLast && state.callState.callAgain;
  switch (answer.state) {
    case "held": {
      const deadline = extendDeadline(state, event, answer.remainingMs, settings);
      // the granted lease has already ended by the local clock: not a grant, though the store may still count it as
      // held
      if (now >= deadline) return endClaim({ ...state, callState }, RELEASE_AND_EXPIRE);
      const dueAt = nextRenewalAt(event.sentAt, answer.remainingMs, settings);
      return grantClaim({ ...state, callState, deadline }, answer, dueAt, callAgain, now, settings);
    }
    case "waiting": {
      if (!settings.wait) return { state: doneState(callState.hasUnansweredClaim), effects: ["refuse", "release"] };
      const deadline = extendDeadline(state, event, answer.remainingMs, settings);
      const dueAt = Math.min(now + answer.recheckMs, nextRenewalAt(event.sentAt, answer.remainingMs, settings));
      const waiting: WaitingState = { status: "waiting", callState, deadline, isWanted: state.isWanted, dueAt };
      const next = callAgain ? callStore(waiting, now) : { state: waiting, effects: NO_EFFECTS };
      return isFirstCall(state) ? { state: next.state, effects: [...next.effects, "wait"] } : next;
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
  const dueAt = state.deadline - BELIEVED_SHARE * settings.ttlMs + settings.ttlMs / RENEWALS_PER_LEASE;
  return grantClaim(state, answer, dueAt, false, now, settings);
}

function grantClaim(
  { callState, deadline, isWanted: wasWanted }: PendingState,
  { token, tokenCount, recalled = false }: HeldAnswer,
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
    doubtfulSince: null,
    unconfirmedUntil: null,
    isWanted: wasWanted || recalled,
    transfer: "none",
  };
  const isLeaseShort = settings.renews && deadline - now < SHORT_LEASE_SHARE * settings.ttlMs;
  if (callState.sentAt !== null)
    return { state: isLeaseShort ? { ...held, callState: askAgain(callState) } : held, effects: GRANT_EFFECTS };
  if (!callAgain && !isLeaseShort) return { state: held, effects: GRANT_EFFECTS };
  return { state: { ...held, callState: afterSend(callState, now, false) }, effects: ["grant", "renew"] };
}

function onPendingNone(state: PendingState, callState: PendingState["callState"], settings: ClaimSettings): Step {
  const hasUnansweredClaim = leavesClaimUnanswered(callState);
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
  const callState = afterFailure(state.callState, now, random, settings.ttlMs);
  if (isFatal || !settings.wait)
    return { state: doneState(callState.hasUnansweredClaim), effects: ["reject", "release"] };
  return { state: { ...state, callState }, effects: isFirstCall(state) ? ["wait"] : NO_EFFECTS };
}

/** No call about the claim has ended. */
function isFirstCall({ status, callState }: PendingState): boolean {
  return status === "asking" && callState.failures === 0;
}

/** Sends the call of this state, or notes that it must be sent when the call in flight has settled. */
function callStore(state: PendingState, now: number): Step {
  if (state.callState.sentAt !== null)
    return { state: { ...state, callState: askAgain(state.callState) }, effects: NO_EFFECTS };
  const isClaimCall = state.status === "asking";
  return {
    state: { ...state, callState: afterSend(state.callState, now, isClaimCall) },
    effects: isClaimCall ? ASK_EFFECTS : RENEW_EFFECTS,
  };
}

// Granted: held.

function stepHeld(state: HeldState, event: LiveEvent, now: number, settings: ClaimSettings): Step {
  if (event.type === "released") return endClaim(state, RELEASE_EFFECTS);
  if (event.type === "maxHoldExceeded") return loseClaim(state, "maxHold", now, settings);
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
      if (event.answer.state === "waiting" || event.answer.token !== state.token) return requestRenewal(state, now);
      return event.answer.recalled === true ? recallClaim(state) : { state, effects: NO_EFFECTS };
    case "failed":
      if (event.call !== state.callState.calls || state.callState.sentAt === null)
        return { state, effects: NO_EFFECTS };
      return onHeldFailure(state, event.random, now, settings);
    case "recheck":
      return requestRenewal(state, now);
    case "recalled":
      return recallClaim(state);
    case "clockStepped": {
      const { state: next, effects } = requestRenewal({ ...state, doubtfulSince: event.epoch }, now);
      return { state: next, effects: state.doubtfulSince === null ? ["jeopardy", ...effects] : effects };
    }
    case "detaching":
      return { state: { ...state, transfer: event.isShortening ? "shortening" : "detaching" }, effects: NO_EFFECTS };
    case "suspended":
      return onSuspend(state, event.byMs, now, settings);
    case "due":
      return onHeldDue(state, event.random, event.withinMs, now, settings);
  }
}

/** When a held claim needs its next "due" event. */
function heldWakeAt(state: HeldState, settings: ClaimSettings): number {
  if (state.transfer === "shortening") return state.unconfirmedUntil ?? state.deadline;
  const regularCallAt = settings.renews ? state.dueAt : Number.POSITIVE_INFINITY;
  const callAt = nextCallAt(state.callState, settings.ttlMs, regularCallAt);
  // renew: false promises that there is no timer; the loss is detected when the lock is next used
  if (!settings.renews && callAt === Number.POSITIVE_INFINITY) return callAt;
  return Math.min(state.unconfirmedUntil ?? state.deadline, callAt);
}

function onHeldDue(state: HeldState, random: number, withinMs: number, now: number, settings: ClaimSettings): Step {
  if (now >= timesOutAt(state.callState, settings.ttlMs)) return onHeldFailure(state, random, now, settings);
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
    const isRecalled = answer.recalled === true && !state.isWanted;
    if (!isLast) {
      const callState = afterEarlierReply(state.callState, event.epoch);
      return recallIf(isRecalled, { ...state, callState, deadline }, NO_EFFECTS);
    }
    // only possible while unconfirmed: the confirmed lease has already ended by the local clock, so ask again
    if (now >= deadline) {
      const callState = afterLateReply(state.callState, event.epoch);
      return requestRenewal({ ...state, deadline, callState }, now);
    }
    const dueAt = nextRenewalAt(event.sentAt, answer.remainingMs, settings);
    const endsDoubt = state.doubtfulSince !== null && event.epoch >= state.doubtfulSince;
    const restored: readonly Effect[] = endsDoubt ? ["restored"] : NO_EFFECTS;
    const held: HeldState = {
      ...state,
      callState: afterReply(state.callState, event.epoch),
      deadline,
      dueAt,
      // a renewal may have lengthened the range
      tokenCount: answer.tokenCount,
      doubtfulSince: endsDoubt ? null : state.doubtfulSince,
      unconfirmedUntil: null,
    };
    if (!state.callState.callAgain) return recallIf(isRecalled, held, restored);
    return recallIf(isRecalled, afterRenewalSent(held, now), [...restored, "renew"]);
  }
  if (!isLast) return { state, effects: NO_EFFECTS };
  const settled: HeldState = { ...state, callState: afterReply(state.callState, event.epoch) };
  if (event.call <= state.grantedAtCall && answer.state === "waiting") {
    // the call was sent before the grant was known, so its answer may be older than the grant
    return state.callState.callAgain ? requestRenewal(settled, now) : { state: settled, effects: NO_EFFECTS };
  }
  return loseClaim(settled, answer.state === "none" ? (answer.reason ?? "unknown") : "unknown", now, settings);
}

function onHeldFailure(state: HeldState, random: number, now: number, settings: ClaimSettings): Step {
  const callState = afterFailure(state.callState, now, random, settings.ttlMs);
  const effects: readonly Effect[] = state.doubtfulSince === null ? ["jeopardy"] : NO_EFFECTS;
  // any later answer ends this doubt; one that a step of the store's clock has begun ends no sooner
  return { state: { ...state, callState, doubtfulSince: state.doubtfulSince ?? 0 }, effects };
}

function recallClaim(state: HeldState): Step {
  return recallIf(!state.isWanted, state, NO_EFFECTS);
}

/** Adds to a step that another claim waits for this one, if that is news. */
function recallIf(isRecalled: boolean, state: HeldState, effects: readonly Effect[]): Step {
  if (!isRecalled) return { state, effects };
  return { state: { ...state, isWanted: true }, effects: [...effects, "recall"] };
}

function requestRenewal(state: HeldState, now: number): Step {
  if (state.transfer === "shortening") return { state, effects: NO_EFFECTS };
  if (state.callState.sentAt !== null)
    return { state: { ...state, callState: askAgain(state.callState) }, effects: NO_EFFECTS };
  return { state: afterRenewalSent(state, now), effects: RENEW_EFFECTS };
}

function afterRenewalSent(state: HeldState, now: number): HeldState {
  return { ...state, callState: afterSend(state.callState, now, false) };
}

/**
 * Counts the suspension as elapsed time. If that ends the lease, the claim is unconfirmed until the store has answered:
 * not lost yet (decision 0010), since it may be a false alarm (the wall clock was set).
 */
function onSuspend(state: HeldState, byMs: number, now: number, settings: ClaimSettings): Step {
  const deadline = state.deadline - byMs;
  const callState = afterSuspend(state.callState);
  if (now < deadline || state.unconfirmedUntil !== null) return requestRenewal({ ...state, callState, deadline }, now);
  const unconfirmedUntil = settings.survivesSilence
    ? now + settings.ttlMs
    : Math.min(state.deadline, now + settings.ttlMs / ATTEMPTS_PER_LEASE);
  return requestRenewal({ ...state, callState, deadline, unconfirmedUntil }, now);
}

function loseClaim(state: HeldState, reason: LostReason, now: number, settings: ClaimSettings): Step {
  const hasUnansweredClaim = leavesClaimUnanswered(state.callState);
  return {
    state: { status: "lost", reason, forgottenAt: now + settings.ttlMs, hasUnansweredClaim },
    effects: ["lose"],
  };
}
