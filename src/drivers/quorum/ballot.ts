/**
 * What one client knows of one claim at each member: its votes. Pure: time comes in, nothing goes out.
 *
 * Invariants
 * - `endsAt` is a time up to which that member certainly keeps the vote, by our clock: nine tenths of what it said was
 *   left, counted from when the answered call was SENT there (design A.18). A push moves it not.
 * - An answer counts only if no later call to that member was answered before; "waiting" counts for nothing if its call
 *   was sent before the grant was pushed.
 * - A push may come by another connection than answers, and late: of a place that was made anew it tells nothing. Or before
 *   the answer that tells of the place, which was sent first: then it counts as soon as that answer is here.
 * - A vote that we gave back (`leaving`) is none until the member has answered that; only then may it be asked for again,
 *   since a release that is still on its way would end the new place. Where a release has failed that is a lease later.
 * - Who has asked for a ticket and had no majority of votes for a moment never has one again: somebody else may have been
 *   granted, with a higher token, and be gone already.
 */

import type { Answer, Claim } from "../../spi/driver.ts";

export interface Vote {
  /** "unknown": nothing was heard of this member. */
  state: "unknown" | "none" | "waiting" | "held";
  endsAt: number;
  /** The member's own token for this vote. */
  token: bigint;
  /** When it wants to be asked again, at the latest. */
  recheckMs: number;
  /** Calls sent to this member so far, and the latest of them that was answered. */
  sent: number;
  heard: number;
  /** Calls up to this one were sent before the grant was pushed. */
  pushedAfter: number;
  /** The token of a grant that was pushed before anything was answered; null: there was none. */
  early: bigint | null;
  /** `claim` calls under way. */
  loose: number;
  /** Those of the ticket's, and such as have failed: they may still be on their way. */
  ticketLoose: number;
  /** The member has lost its ticket, and was asked for another one. */
  ticketAgain: boolean;
  /** A `claim` call has failed: it may still be on its way. */
  lost: boolean;
  leaving: boolean;
  /** It may have had a place there before: a push may be of that one. */
  again: boolean;
}

/** The lease is believed for nine tenths of it. */
const BELIEVED = 0.9;

/** Of the lease: by so much may a pushed majority end earlier than the one that was told of to a waiting claim. */
const SLACK = 0.02;

/** How many of so many members any two of which share one. */
export function majorityOf(members: number): number {
  return (members >> 1) + 1;
}

export class Ballot {
  /** As the members get it: a vote has no floor, so that its token tells what a member's clock was. */
  readonly claim: Claim;
  /** Below this no token may be granted. */
  readonly floor: bigint;
  readonly ttlMs: number;
  readonly votes: readonly Vote[];
  readonly majority: number;
  /** The grant's token; null: not granted yet. */
  token: bigint | null = null;
  tokens = 1;
  /** Placed by this client. Of one that another client made only what is found at the members counts, and none of it is made. */
  isOurs = false;
  /** A ticket was asked for, or found. */
  ticketed = false;
  minting: Promise<boolean> | null = null;
  /** When the core last asked about it. */
  askedAt = 0;
  /** Verbs of the core that are at work on it; what changes meanwhile they see. */
  verbs = 0;
  /** Released, or told to be gone: nothing more is done about it. */
  over = false;
  /** Over without a release: what comes yet is given back as it comes. */
  abandoned = false;
  /** When a vote of a split is given back; null: there is no split. */
  yieldAt: number | null = null;
  yields = 0;
  /** It had no majority any more after it had asked for a ticket. */
  #lapsed = false;

  constructor(claim: Claim, members: number) {
    this.claim = claim.floor === 0n ? claim : { ...claim, floor: 0n };
    this.floor = claim.floor;
    this.ttlMs = claim.ttlMs === "session" ? 0 : claim.ttlMs;
    this.majority = majorityOf(members);
    this.votes = Array.from({ length: members }, fresh);
  }

  /** The member answered call number `call`, sent at `sentAt`. */
  answered(index: number, call: number, sentAt: number, answer: Answer, now: number): void {
    const vote = this.votes[index] as Vote;
    if (vote.leaving || call < vote.heard) return;
    this.held(now);
    const { early } = vote;
    const isOlder = answer.state === "waiting" && call <= vote.pushedAfter;
    if (isOlder && early === null) return;
    vote.heard = call;
    if (answer.state === "none") return this.#loses(vote);
    const endsAt = sentAt + BELIEVED * Math.min(answer.ttlMs, this.ttlMs);
    vote.endsAt = Math.max(vote.endsAt, endsAt);
    vote.early = null;
    if (isOlder && early !== null) {
      vote.state = "held";
      vote.token = early;
      return;
    }
    if (answer.state === "waiting" && vote.state === "held") this.#loses(vote, vote.endsAt);
    vote.state = answer.state;
    if (answer.state === "held") vote.token = answer.token;
    else vote.recheckMs = answer.recheckMs;
  }

  /** The member spoke first. False: that is only a hint, and it is to be asked. */
  pushed(index: number, answer: Answer, now: number): boolean {
    const vote = this.votes[index] as Vote;
    if (vote.leaving || answer.state === "waiting") return true;
    this.held(now);
    // while nothing was answered, the second call may have made the place anew, too
    if (answer.state === "held" && (vote.again || (vote.state === "unknown" && vote.sent > 1))) return false;
    vote.pushedAfter = vote.sent;
    if (answer.state === "none") {
      this.#loses(vote);
      return false;
    }
    // a place that nothing is known of has no lease that could be counted: the answer that is on its way has one
    if (vote.state === "unknown") vote.early = answer.token;
    if (vote.state !== "waiting") return true;
    vote.state = "held";
    vote.token = answer.token;
    return true;
  }

  /** We give the vote back. */
  leaves(index: number): void {
    const vote = this.votes[index] as Vote;
    clear(vote);
    vote.leaving = true;
    vote.heard = vote.sent + 1;
  }

  /** The member has answered that it let the vote go. */
  left(index: number): void {
    (this.votes[index] as Vote).leaving = false;
  }

  /** Votes that stand by our clock. Asked before any of them changes, it sees every moment without a majority. */
  held(now: number): number {
    const held = count(this.votes, (vote) => vote.state === "held" && vote.endsAt > now);
    if (this.ticketed && held < this.majority) this.#lapsed = true;
    return this.#lapsed ? 0 : held;
  }

  /** Places that stand by our clock, held or waiting. */
  placed(now: number): number {
    return count(this.votes, (vote) => (vote.state === "held" || vote.state === "waiting") && vote.endsAt > now);
  }

  /** Members of whom nothing is known. */
  unknown(): number {
    return count(this.votes, ({ state }) => state === "unknown");
  }

  /** Until when a majority of the votes stands: the least of the latest so many. */
  heldUntil(): number {
    return this.#nthEnd((vote) => vote.state === "held");
  }

  /**
   * Until when a majority of the places stands, and a little less: so that a majority of grants that is pushed is never
   * believed for longer than it stands, and seldom stands for less.
   */
  placedUntil(): number {
    return this.#nthEnd((vote) => vote.state === "held" || vote.state === "waiting") - SLACK * this.ttlMs;
  }

  /** Some votes, and not enough. */
  isSplit(now: number): boolean {
    const held = this.held(now);
    return held > 0 && held < this.majority;
  }

  /** Nothing of it is on its way, nor may be. */
  get isClear(): boolean {
    return this.votes.every(({ leaving, loose, lost }) => !leaving && !lost && loose === 0);
  }

  recheckMs(): number {
    let soonest = this.ttlMs;
    for (const { state, recheckMs } of this.votes) if (state === "waiting") soonest = Math.min(soonest, recheckMs);
    return Math.max(soonest, 1);
  }

  /**
   * What the member's clock was, in microseconds, by the token of its vote: right where a key's tokens rise with that key
   * alone. Where several keys share them, tickets are among them, and floors made of them would run ahead of each other.
   */
  clockBy(index: number): bigint {
    const vote = this.votes[index];
    return vote?.state === "held" ? vote.token : 0n;
  }

  /** endsAt: until when a place is left of it. */
  #loses(vote: Vote, endsAt = 0): void {
    const wasHeld = vote.state === "held";
    clear(vote);
    vote.endsAt = endsAt;
    if (wasHeld && this.ticketed && count(this.votes, ({ state }) => state === "held") < this.majority) {
      this.#lapsed = true;
    }
  }

  #nthEnd(counts: (vote: Vote) => boolean): number {
    const ends = this.votes.filter(counts).map(({ endsAt }) => endsAt);
    return ends.sort((one, other) => other - one)[this.majority - 1] ?? Number.NEGATIVE_INFINITY;
  }
}

/** What a lease that ends at `endsAt` is told as by a call that began at `startedAt`: the core takes nine tenths of it. */
export function leftMs(endsAt: number, startedAt: number, ttlMs: number): number {
  return Math.min((endsAt - startedAt) / BELIEVED, ttlMs);
}

function fresh(): Vote {
  return {
    state: "unknown",
    endsAt: 0,
    token: 0n,
    recheckMs: 0,
    sent: 0,
    heard: 0,
    pushedAfter: 0,
    early: null,
    loose: 0,
    ticketLoose: 0,
    ticketAgain: false,
    lost: false,
    leaving: false,
    again: false,
  };
}

function clear(vote: Vote): void {
  vote.again = true;
  vote.state = "none";
  vote.early = null;
  vote.endsAt = 0;
}

function count(votes: readonly Vote[], counts: (vote: Vote) => boolean): number {
  let sum = 0;
  for (const vote of votes) if (counts(vote)) sum++;
  return sum;
}
