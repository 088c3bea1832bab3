/** A claim's machine while it is asking or waiting. See claim.ts. */

import type { Answer } from "../spi/driver.ts";
import type {
  AnsweredEvent,
  ClaimEvent,
  Effect,
  Held,
  HeldAnswer,
  Pending,
  Step,
  Terms,
  Waiting,
} from "./claim-state.ts";
import { ASK, end, extended, GRANT, NOTHING, over, RENEW, renewalDue } from "./claim-state.ts";
import type { Talk } from "./talk.ts";
import * as talking from "./talk.ts";

/** Released first: whoever makes a new claim is not to wait behind the old one. */
const TOO_LATE: readonly Effect[] = ["release", "expire"];

/** Invariant: no effect "grant" without a lease that stands by our clock (`now < deadline`). */
export function whilePending(state: Pending, event: ClaimEvent, now: number, terms: Terms): Step {
  if (event.type === "left") return end(state, ["release"]);
  if (now >= state.deadline) {
    // the store may have forgotten the place, so whatever comes now is no grant
    if (!terms.endures || state.talk.failures > 0) return end(state, TOO_LATE);
    return whilePending({ ...state, deadline: now + terms.ttlMs }, event, now, terms);
  }
  switch (event.type) {
    case "answered":
      return answered(state, event, now, terms);
    case "pushed":
      return pushed(state, event.answer, now, terms);
    case "failed":
      if (event.call !== state.talk.calls || state.talk.sentAt === null) return { state, effects: NOTHING };
      return fail(state, event.fatal, event.random, now, terms);
    case "notified":
      return call(state, now);
    case "slept": {
      // as if that time had passed; then ask
      const shortened = { ...state, deadline: state.deadline - event.byMs, talk: talking.slept(state.talk) };
      return whilePending(shortened, { type: "notified" }, now, terms);
    }
    case "due":
      return due(state, event.random, event.withinMs, now, terms);
    case "overstayed":
      return { state, effects: NOTHING };
  }
}

/** When a pending claim has to do something by itself. */
export function pendingWakesAt(state: Pending, terms: Terms): number {
  const regular = state.at === "asking" ? state.deadline : state.dueAt;
  return Math.min(state.deadline, talking.talksAt(state.talk, terms.ttlMs, regular));
}

function due(state: Pending, random: number, withinMs: number, now: number, terms: Terms): Step {
  if (now >= talking.givesUpAt(state.talk, terms.ttlMs)) return fail(state, false, random, now, terms);
  const calls = state.talk.sentAt === null && now + withinMs >= pendingWakesAt(state, terms);
  return calls ? call(state, now) : { state, effects: NOTHING };
}

function answered(state: Pending, event: AnsweredEvent, now: number, terms: Terms): Step {
  const { answer } = event;
  const isLast = event.call === state.talk.calls;
  // the late answer of a call given up on: only "held" is worth anything, the rest may be outdated
  if (!isLast && answer.state !== "held") return { state, effects: NOTHING };
  const talk = isLast ? talking.settled(state.talk) : state.talk;
  const again = isLast && state.talk.again;
  switch (answer.state) {
    case "held": {
      const deadline = extended(state, event, answer.ttlMs, terms);
      // what it grants is over by our clock: no grant, though the store may count it as one for a while
      if (now >= deadline) return end({ ...state, talk }, TOO_LATE);
      const dueAt = renewalDue(event.sentAt, answer.ttlMs, terms);
      return grant(talk, answer, deadline, dueAt, again, now, terms);
    }
    case "waiting": {
      if (!terms.wait) return { state: over(talk.unanswered), effects: ["refuse", "release"] };
      const deadline = extended(state, event, answer.ttlMs, terms);
      const dueAt = Math.min(now + answer.recheckMs, renewalDue(event.sentAt, answer.ttlMs, terms));
      const waiting: Waiting = { at: "waiting", talk, deadline, dueAt };
      return again ? call(waiting, now) : { state: waiting, effects: NOTHING };
    }
    case "none":
      return none(state, talk, terms);
  }
}

function pushed(state: Pending, answer: Answer, now: number, terms: Terms): Step {
  if (answer.state === "none") return none(state, state.talk, terms);
  // a push that grants less than we believe to have is older than what we know: only a hint
  if (answer.state === "waiting" || now + answer.ttlMs < state.deadline) return call(state, now);
  // a push carries no send time, so it moves no deadline
  const dueAt = state.deadline - 0.9 * terms.ttlMs + terms.ttlMs / 3;
  return grant(state.talk, answer, state.deadline, dueAt, false, now, terms);
}

function grant(
  talk: Talk,
  { token, tokens }: HeldAnswer,
  deadline: number,
  dueAt: number,
  again: boolean,
  now: number,
  terms: Terms,
): Step {
  const held: Held = { at: "held", talk, deadline, dueAt, token, tokens, knownAt: talk.calls, doubtUntil: null };
  const tooShort = terms.renews && deadline - now < 0.45 * terms.ttlMs;
  if (talk.sentAt !== null) return { state: tooShort ? { ...held, talk: talking.nudged(talk) } : held, effects: GRANT };
  if (!again && !tooShort) return { state: held, effects: GRANT };
  return { state: { ...held, talk: talking.sent(talk, now, false) }, effects: ["grant", "renew"] };
}

function none(state: Pending, talk: Talk, terms: Terms): Step {
  const unanswered = talking.leavesUnanswered(talk);
  const told: Effect = terms.wait ? "expire" : "refuse";
  // "none" means no trace, unless an earlier `claim` is still on its way
  return { state: over(unanswered), effects: unanswered || state.at === "waiting" ? [told, "release"] : [told] };
}

function fail(state: Pending, fatal: boolean, random: number, now: number, terms: Terms): Step {
  const talk = talking.failed(state.talk, now, random, terms.ttlMs);
  if (fatal || !terms.wait) return { state: over(talk.unanswered), effects: ["reject", "release"] };
  return { state: { ...state, talk }, effects: NOTHING };
}

/** Sends the state's call, or notes that it must be sent when the one under way has settled. */
function call(state: Pending, now: number): Step {
  if (state.talk.sentAt !== null) return { state: { ...state, talk: talking.nudged(state.talk) }, effects: NOTHING };
  const asks = state.at === "asking";
  return { state: { ...state, talk: talking.sent(state.talk, now, asks) }, effects: asks ? ASK : RENEW };
}
