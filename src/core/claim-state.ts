/** What a claim's machine is made of: its terms, states, events and effects. The machine itself stands in claim.ts. */

import type { Answer, LostReason } from "../spi/driver.ts";
import type { Talk } from "./talk.ts";
import { leavesUnanswered } from "./talk.ts";

/** What does not change in a claim's life. */
export interface Terms {
  /** The lease's length, milliseconds; for a session claim the session's. */
  readonly ttlMs: number;
  /** false: asked once. */
  readonly wait: boolean;
  /** A session claim on a store where silence does not end it. */
  readonly endures: boolean;
  /** false: nothing is renewed while held, and nothing wakes for it. */
  readonly renews: boolean;
}

/** The store has not said yet that it knows the claim. */
interface Asking {
  readonly at: "asking";
  readonly talk: Talk;
  readonly deadline: number;
}
/** The store keeps a place for it, as far as is known. */
export interface Waiting {
  readonly at: "waiting";
  readonly talk: Talk;
  readonly deadline: number;
  /** When the next call is due: a renewal or a recheck. */
  readonly dueAt: number;
}
/** Granted, and until `deadline` believed, by our clock. */
export interface Held {
  readonly at: "held";
  readonly talk: Talk;
  readonly deadline: number;
  /** When the next renewal is due. */
  readonly dueAt: number;
  readonly token: bigint;
  readonly tokens: number;
  /** The last call sent before the grant was known: its answer may be older than the grant. */
  readonly knownAt: number;
  /** If not null we are unsure whether we still hold, until an answer; when this passes we have lost. */
  readonly doubtUntil: number | null;
}
/** Its holder has been told; it is released when its body has ended. */
interface Lost {
  readonly at: "lost";
  readonly reason: LostReason;
  /** When the store has forgotten the claim in any case. */
  readonly forgetAt: number;
  readonly unanswered: boolean;
}
/** Nobody here wants it any more. */
export interface Over {
  readonly at: "over";
  /** A `claim` call may still be on its way to the store. */
  readonly unanswered: boolean;
}

/** Not granted yet. */
export type Pending = Asking | Waiting;
/** A claim is in one of these; only step() in claim.ts changes it. */
export type ClaimState = Asking | Waiting | Held | Lost | Over;

/** What happens to a claim. Times in milliseconds, on the scale of step()'s `now`. */
export type ClaimEvent =
  /** The call with that number, sent then, was answered. */
  | { readonly type: "answered"; readonly call: number; readonly sentAt: number; readonly answer: Answer }
  | { readonly type: "failed"; readonly call: number; readonly fatal: boolean; readonly random: number }
  | { readonly type: "pushed"; readonly answer: Answer }
  /** The store said that something may have changed. */
  | { readonly type: "notified" }
  /** wakeAt() has come, or comes within withinMs: then a call may ride along with others. */
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
 * What the shell has to do, in order. ask, renew: send that call, number `talk.calls`. refuse: busy (`wait: false`).
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
export const NOTHING: readonly Effect[] = [];
export const ASK: readonly Effect[] = ["ask"];
export const RENEW: readonly Effect[] = ["renew"];
export const GRANT: readonly Effect[] = ["grant"];
export const RELEASE: readonly Effect[] = ["release"];

/** The state after the end. */
export function over(unanswered: boolean): Over {
  return { at: "over", unanswered };
}

/** The claim is over. */
export function end(state: Pending | Held, effects: readonly Effect[]): Step {
  return { state: over(leavesUnanswered(state.talk)), effects };
}

/**
 * The lease-time rule (design A.18). Clock rates may differ by 1 %; the other 9 % is time for the holder to stop. A call
 * sent before the machine slept extends nothing: the time since is longer than our clock says.
 */
export function extended(state: Pending | Held, by: AnsweredEvent, leftMs: number, terms: Terms): number {
  const left = Math.min(leftMs, terms.ttlMs);
  // until the first answer the deadline is what was asked for, and the store may have given less
  const isFirst = state.at === "asking" && !terms.endures;
  if (by.call <= state.talk.sleptAfter) return isFirst ? state.deadline - 0.9 * (terms.ttlMs - left) : state.deadline;
  const deadline = by.sentAt + 0.9 * left;
  return isFirst ? deadline : Math.max(state.deadline, deadline);
}

/**
 * A third of the lease after it began; it began before the send if the answer says that less is left. Never at once, so
 * that a store which does not lengthen a lease is not asked in a busy loop.
 */
export function renewalDue(sentAt: number, leftMs: number, terms: Terms): number {
  const left = Math.min(leftMs, terms.ttlMs);
  return Math.max(sentAt - (terms.ttlMs - left) + terms.ttlMs / 3, sentAt + Math.max(left / 6, terms.ttlMs / 200));
}
