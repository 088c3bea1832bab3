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
 * - A vote that we gave back (`isReleasePending`) is none until the member has answered that; only then may it be asked for again,
 *   since a release that is still on its way would end the new place. Where a release has failed that is a lease later.
 * - Who has asked for a ticket and had no majority of votes for a moment never has one again: somebody else may have been
 *   granted, with a higher token, and be gone already.
 */

import type { Answer, Claim } from "../../spi/driver.ts";

export interface MemberClaim {
  /** "unknown": nothing was heard of this member. */
  state: "unknown" | "none" | "waiting" | "held";
  endsAt: number;
  /** The member's own token for this vote. */
  token: bigint;
  /** When it wants to be asked again, at the latest. */
  recheckMs: number;
  /** Calls sent to this member so far, and the latest of them that was answered. */
  callCount: number;
  lastAnsweredCall: number;
  /** Calls up to this one were sent before the grant was pushed. */
  pushedAfterCall: number;
  /** The token of a grant that was pushed before anything was answered; null: there was none. */
  earlyGrant: bigint | null;
  /** `claim` calls under way. */
  claimsInFlight: number;
  /** Those of the ticket's, and such as have failed: they may still be on their way. */
  tokenClaimsInFlight: number;
  /** The member has lost its ticket, and was asked for another one. */
  isTokenClaimReplaced: boolean;
  /** A `claim` call has failed: it may still be on its way. */
  isOutcomeUnknown: boolean;
  isReleasePending: boolean;
  /** It may have had a place there before: a push may be of that one. */
  mayHaveOlderEntry: boolean;
}

/** The lease is believed for nine tenths of it. */
const BELIEVED_SHARE = 0.9;

/** Of the lease: by so much may a pushed majority end earlier than the one that was told of to a waiting claim. */
const PUSH_SLACK_SHARE = 0.02;

/** How many of so many members any two of which share one. */
export function toMajority(members: number): number {
  return (members >> 1) + 1;
}

export class QuorumClaim {
  /** As the members get it: a vote has no floor, so that its token tells what a member's clock was. */
  readonly claim: Claim;
  /** Below this no token may be granted. */
  readonly floor: bigint;
  readonly ttlMs: number;
  readonly memberClaims: readonly MemberClaim[];
  readonly majority: number;
  /** The grant's token; null: not granted yet. */
  token: bigint | null = null;
  tokens = 1;
  /** Placed by this client. Of one that another client made only what is found at the members counts, and none of it is made. */
  isOurs = false;
  /** A ticket was asked for, or found. */
  hasTokenClaim = false;
  tokenRequest: Promise<boolean> | null = null;
  /** When the core last asked about it. */
  lastUsedAt = 0;
  /** Verbs of the core that are at work on it; what changes meanwhile they see. */
  activeCalls = 0;
  /** Released, or told to be gone: nothing more is done about it. */
  isDone = false;
  /** Over without a release: what comes yet is given back as it comes. */
  isAbandoned = false;
  /** When a vote of a split is given back; null: there is no split. */
  backOffAt: number | null = null;
  backOffCount = 0;
  /** It had no majority any more after it had asked for a ticket. */
  #hasLostMajority = false;

  constructor(claim: Claim, members: number) {
    this.claim = claim.floor === 0n ? claim : { ...claim, floor: 0n };
    this.floor = claim.floor;
    this.ttlMs = claim.ttlMs === "session" ? 0 : claim.ttlMs;
    this.majority = toMajority(members);
    this.memberClaims = Array.from({ length: members }, createMemberClaim);
  }

  /** The member answered call number `call`, sent at `sentAt`. */
  onAnswer(index: number, call: number, sentAt: number, answer: Answer, now: number): void {
    const memberClaim = this.memberClaims[index] as MemberClaim;
    if (memberClaim.isReleasePending || call < memberClaim.lastAnsweredCall) return;
    this.countHeld(now);
    const { earlyGrant } = memberClaim;
    const isOlder = answer.state === "waiting" && call <= memberClaim.pushedAfterCall;
    if (isOlder && earlyGrant === null) return;
    memberClaim.lastAnsweredCall = call;
    if (answer.state === "none") return this.#loseMember(memberClaim);
    const endsAt = sentAt + BELIEVED_SHARE * Math.min(answer.ttlMs, this.ttlMs);
    memberClaim.endsAt = Math.max(memberClaim.endsAt, endsAt);
    memberClaim.earlyGrant = null;
    if (isOlder && earlyGrant !== null) {
      memberClaim.state = "held";
      memberClaim.token = earlyGrant;
      return;
    }
    if (answer.state === "waiting" && memberClaim.state === "held") this.#loseMember(memberClaim, memberClaim.endsAt);
    memberClaim.state = answer.state;
    if (answer.state === "held") memberClaim.token = answer.token;
    else memberClaim.recheckMs = answer.recheckMs;
  }

  /** The member spoke first. False: that is only a hint, and it is to be asked. */
  onPush(index: number, answer: Answer, now: number): boolean {
    const memberClaim = this.memberClaims[index] as MemberClaim;
    if (memberClaim.isReleasePending || answer.state === "waiting") return true;
    this.countHeld(now);
    // while nothing was answered, the second call may have made the place anew, too
    if (
      answer.state === "held" &&
      (memberClaim.mayHaveOlderEntry || (memberClaim.state === "unknown" && memberClaim.callCount > 1))
    )
      return false;
    memberClaim.pushedAfterCall = memberClaim.callCount;
    if (answer.state === "none") {
      this.#loseMember(memberClaim);
      return false;
    }
    // a place that nothing is known of has no lease that could be counted: the answer that is on its way has one
    if (memberClaim.state === "unknown") memberClaim.earlyGrant = answer.token;
    if (memberClaim.state !== "waiting") return true;
    memberClaim.state = "held";
    memberClaim.token = answer.token;
    return true;
  }

  /** We give the vote back. */
  startRelease(index: number): void {
    const memberClaim = this.memberClaims[index] as MemberClaim;
    resetMemberClaim(memberClaim);
    memberClaim.isReleasePending = true;
    memberClaim.lastAnsweredCall = memberClaim.callCount + 1;
  }

  /** The member has answered that it let the vote go. */
  confirmRelease(index: number): void {
    (this.memberClaims[index] as MemberClaim).isReleasePending = false;
  }

  /** Votes that stand by our clock. Asked before any of them changes, it sees every moment without a majority. */
  countHeld(now: number): number {
    const held = countMatching(
      this.memberClaims,
      (memberClaim) => memberClaim.state === "held" && memberClaim.endsAt > now,
    );
    if (this.hasTokenClaim && held < this.majority) this.#hasLostMajority = true;
    return this.#hasLostMajority ? 0 : held;
  }

  /** Places that stand by our clock, held or waiting. */
  countPlaced(now: number): number {
    return countMatching(
      this.memberClaims,
      (memberClaim) => (memberClaim.state === "held" || memberClaim.state === "waiting") && memberClaim.endsAt > now,
    );
  }

  /** Members of whom nothing is known. */
  countUnknown(): number {
    return countMatching(this.memberClaims, ({ state }) => state === "unknown");
  }

  /** Until when a majority of the votes stands: the least of the latest so many. */
  heldUntil(): number {
    return this.#majorityEndsAt((memberClaim) => memberClaim.state === "held");
  }

  /**
   * Until when a majority of the places stands, and a little less: so that a majority of grants that is pushed is never
   * believed for longer than it stands, and seldom stands for less.
   */
  placedUntil(): number {
    return (
      this.#majorityEndsAt((memberClaim) => memberClaim.state === "held" || memberClaim.state === "waiting") -
      PUSH_SLACK_SHARE * this.ttlMs
    );
  }

  /** Some votes, and not enough. */
  isSplit(now: number): boolean {
    const held = this.countHeld(now);
    return held > 0 && held < this.majority;
  }

  /** Nothing of it is on its way, nor may be. */
  get isSettled(): boolean {
    return this.memberClaims.every(
      ({ isReleasePending, claimsInFlight, isOutcomeUnknown }) =>
        !isReleasePending && !isOutcomeUnknown && claimsInFlight === 0,
    );
  }

  recheckMs(): number {
    let soonest = this.ttlMs;
    for (const { state, recheckMs } of this.memberClaims)
      if (state === "waiting") soonest = Math.min(soonest, recheckMs);
    return Math.max(soonest, 1);
  }

  /**
   * What the member's clock was, in microseconds, by the token of its vote: right where a key's tokens rise with that key
   * alone. Where several keys share them, tickets are among them, and floors made of them would run ahead of each other.
   */
  clockOfMember(index: number): bigint {
    const memberClaim = this.memberClaims[index];
    return memberClaim?.state === "held" ? memberClaim.token : 0n;
  }

  /** endsAt: until when a place is left of it. */
  #loseMember(memberClaim: MemberClaim, endsAt = 0): void {
    const wasHeld = memberClaim.state === "held";
    resetMemberClaim(memberClaim);
    memberClaim.endsAt = endsAt;
    if (
      wasHeld &&
      this.hasTokenClaim &&
      countMatching(this.memberClaims, ({ state }) => state === "held") < this.majority
    ) {
      this.#hasLostMajority = true;
    }
  }

  #majorityEndsAt(isCounted: (memberClaim: MemberClaim) => boolean): number {
    const ends = this.memberClaims.filter(isCounted).map(({ endsAt }) => endsAt);
    return ends.sort((left, right) => right - left)[this.majority - 1] ?? Number.NEGATIVE_INFINITY;
  }
}

/** What a lease that ends at `endsAt` is told as by a call that began at `startedAt`: the core takes nine tenths of it. */
export function toRemainingMs(endsAt: number, startedAt: number, ttlMs: number): number {
  return Math.min((endsAt - startedAt) / BELIEVED_SHARE, ttlMs);
}

function createMemberClaim(): MemberClaim {
  return {
    state: "unknown",
    endsAt: 0,
    token: 0n,
    recheckMs: 0,
    callCount: 0,
    lastAnsweredCall: 0,
    pushedAfterCall: 0,
    earlyGrant: null,
    claimsInFlight: 0,
    tokenClaimsInFlight: 0,
    isTokenClaimReplaced: false,
    isOutcomeUnknown: false,
    isReleasePending: false,
    mayHaveOlderEntry: false,
  };
}

function resetMemberClaim(memberClaim: MemberClaim): void {
  memberClaim.mayHaveOlderEntry = true;
  memberClaim.state = "none";
  memberClaim.earlyGrant = null;
  memberClaim.endsAt = 0;
}

function countMatching(memberClaims: readonly MemberClaim[], isCounted: (memberClaim: MemberClaim) => boolean): number {
  let sum = 0;
  for (const memberClaim of memberClaims) if (isCounted(memberClaim)) sum++;
  return sum;
}
