/** A claim's machine while it is held. See claim.ts. */

import type { LostReason } from "../spi/driver.ts";
import type { AnsweredEvent, ClaimEvent, Effect, Held, Step, Terms } from "./claim-state.ts";
import { end, extended, NOTHING, RELEASE, RENEW, renewalDue } from "./claim-state.ts";
import * as talking from "./talk.ts";

export function whileHeld(state: Held, event: ClaimEvent, now: number, terms: Terms): Step {
  if (event.type === "left") return end(state, RELEASE);
  if (event.type === "overstayed") return lose(state, event.reason, now, terms);
  if (now >= (state.doubtUntil ?? state.deadline)) {
    if (state.doubtUntil !== null || !terms.endures) return lose(state, "expired", now, terms);
    // silence does not end it: ask, and believe nothing until the store has spoken
    return renew({ ...state, doubtUntil: now + terms.ttlMs }, now);
  }
  switch (event.type) {
    case "answered":
      return answered(state, event, now, terms);
    case "pushed":
      if (event.answer.state === "none") return lose(state, event.answer.reason ?? "unknown", now, terms);
      return event.answer.state === "waiting" || event.answer.token !== state.token
        ? renew(state, now)
        : { state, effects: NOTHING };
    case "failed":
      if (event.call !== state.talk.calls || state.talk.sentAt === null) return { state, effects: NOTHING };
      return fail(state, event.random, now, terms);
    case "notified":
      return renew(state, now);
    case "slept":
      return slept(state, event.byMs, now, terms);
    case "due":
      return due(state, event.random, event.withinMs, now, terms);
  }
}

/** When a held claim has to do something by itself. */
export function heldWakesAt(state: Held, terms: Terms): number {
  const regular = terms.renews ? state.dueAt : Number.POSITIVE_INFINITY;
  const speaks = talking.talksAt(state.talk, terms.ttlMs, regular);
  // renew: false means no timer at all: such a loss is seen when somebody looks
  if (!terms.renews && speaks === Number.POSITIVE_INFINITY) return speaks;
  return Math.min(state.doubtUntil ?? state.deadline, speaks);
}

function due(state: Held, random: number, withinMs: number, now: number, terms: Terms): Step {
  if (now >= talking.givesUpAt(state.talk, terms.ttlMs)) return fail(state, random, now, terms);
  const calls = state.talk.sentAt === null && now + withinMs >= heldWakesAt(state, terms);
  return calls ? renew(state, now) : { state, effects: NOTHING };
}

function answered(state: Held, event: AnsweredEvent, now: number, terms: Terms): Step {
  const { answer } = event;
  const isLast = event.call === state.talk.calls;
  if (event.call <= state.talk.sleptAfter && answer.state !== "none") {
    // how old this is we cannot tell; slept() saw to it that another call follows
    return isLast && state.talk.again ? { state: sending(state, now), effects: RENEW } : { state, effects: NOTHING };
  }
  if (answer.state === "held" && answer.token === state.token) {
    const deadline = extended(state, event, answer.ttlMs, terms);
    if (!isLast) return { state: { ...state, deadline }, effects: NOTHING };
    // only in doubt, which goes on: what this answer says is over by our clock
    if (now >= deadline) return renew({ ...state, deadline, talk: talking.unconfirmed(state.talk) }, now);
    const dueAt = renewalDue(event.sentAt, answer.ttlMs, terms);
    const { token, tokens, knownAt, talk } = state;
    const restored: readonly Effect[] = talk.failures > 0 ? ["restored"] : NOTHING;
    const held: Held = {
      at: "held",
      talk: talking.settled(talk),
      deadline,
      dueAt,
      token,
      tokens,
      knownAt,
      doubtUntil: null,
    };
    if (!talk.again) return { state: held, effects: restored };
    return { state: sending(held, now), effects: [...restored, "renew"] };
  }
  if (!isLast) return { state, effects: NOTHING };
  const settled: Held = { ...state, talk: talking.settled(state.talk) };
  if (event.call <= state.knownAt && answer.state === "waiting") {
    // sent before the grant was known, so it may be older than the grant
    return state.talk.again ? renew(settled, now) : { state: settled, effects: NOTHING };
  }
  return lose(settled, answer.state === "none" ? (answer.reason ?? "unknown") : "unknown", now, terms);
}

function fail(state: Held, random: number, now: number, terms: Terms): Step {
  const talk = talking.failed(state.talk, now, random, terms.ttlMs);
  return { state: { ...state, talk }, effects: state.talk.failures === 0 ? ["jeopardy"] : NOTHING };
}

function renew(state: Held, now: number): Step {
  if (state.talk.sentAt !== null) return { state: { ...state, talk: talking.nudged(state.talk) }, effects: NOTHING };
  return { state: sending(state, now), effects: RENEW };
}

function sending(state: Held, now: number): Held {
  return { ...state, talk: talking.sent(state.talk, now, false) };
}

/**
 * As if that time had passed. If the lease would be over by it, believe nothing until the store has spoken: not lost
 * yet, since it may be a false alarm (a wall clock was set).
 */
function slept(state: Held, byMs: number, now: number, terms: Terms): Step {
  const deadline = state.deadline - byMs;
  const talk = talking.slept(state.talk);
  if (now < deadline || state.doubtUntil !== null) return renew({ ...state, talk, deadline }, now);
  const patience = terms.endures ? now + terms.ttlMs : Math.min(state.deadline, now + terms.ttlMs / 6);
  return renew({ ...state, talk, deadline, doubtUntil: patience }, now);
}

function lose(state: Held, reason: LostReason, now: number, terms: Terms): Step {
  const unanswered = talking.leavesUnanswered(state.talk);
  return { state: { at: "lost", reason, forgetAt: now + terms.ttlMs, unanswered }, effects: ["lose"] };
}
