/**
 * The state of one claim at each member, as this client knows it. Pure: it gets the time as a parameter and calls
 * nothing. An entry that its member has granted is a vote.
 *
 * Invariants
 * - `endsAt` is a time until which that member certainly keeps the entry, by this client's clock: nine tenths of the
 *   remaining lease, counted from when the answered call was SENT (decision 0003). A push does not move it.
 * - An answer counts only if no later call to that member was answered before; "waiting" is ignored if its call was
 *   sent before the grant was pushed.
 * - A push may use another connection than answers. It may come late: it says nothing about an entry that was made
 *   again. It may also overtake the first answer about its entry: then it counts as soon as that answer arrives.
 * - A released vote (`isReleasePending`) does not count, and may be claimed again only when the member has answered the
 *   release: a release still in flight would end the new entry. After a failed release this takes a lease more.
 * - A recall of one member counts: the claim that waits there waits for this vote. It ends with the vote, or with an answer to a
 *   later call that does not repeat it.
 * - A vote whose member's connection broke since its last answer keeps its lease for a holder, but confirms nothing: the member may
 *   have come back empty. A majority that includes such a vote is neither a grant nor the answer to a renewal: it is unknown.
 * - A claim that has made a token claim and then had no majority of votes for a moment never has one again: another
 *   claim may have been granted meanwhile, with a higher token, and have ended already.
 */

import { believedUntil } from "../../claim/lease-deadline.ts";
import { BELIEVED_SHARE } from "../../claim/lease-shares.ts";
import type { Answer, Claim, ClaimId, TokenRange } from "../../spi/driver.ts";

export interface MemberClaim {
  /** "unknown": this member has not answered yet. */
  state: "unknown" | "none" | "waiting" | "held";
  endsAt: number;
  /** The member's own token for this vote. */
  token: bigint;
  /** The latest time to recheck, in milliseconds from the answer. */
  recheckMs: number;
  /** How many calls were sent to this member, and the number of the latest answered one. */
  callCount: number;
  lastAnsweredCall: number;
  /** Calls up to this one were sent before the grant was pushed. */
  pushedAfterCall: number;
  /** The token of a grant that was pushed before the first answer; null: there was none. */
  earlyGrant: bigint | null;
  /** `claim` calls in flight. */
  claimsInFlight: number;
  /** `claim` calls of the token claim that are in flight or have failed: they may still arrive. */
  tokenClaimsInFlight: number;
  /** The member has lost the token claim and got a replacement. */
  isTokenClaimReplaced: boolean;
  /** A `claim` call has failed: it may still arrive. */
  isOutcomeUnknown: boolean;
  /** Another claim waits for this vote, as this member has said. */
  isRecalled: boolean;
  /** Calls up to this one were sent before the member pushed that. */
  recalledAfterCall: number;
  isReleasePending: boolean;
  /** Calls up to this one were sent before the member's connection broke. */
  brokenAfterCall: number;
  /** The member may have had an older entry of this claim: a push may be about that one. */
  mayHaveOlderEntry: boolean;
}

/**
 * The share of a lease by which a pushed majority may end earlier than the lease last reported to the waiting claim.
 */
const PUSH_SLACK_SHARE = 0.02;

/** The smallest number of members such that any two sets of that size share a member. */
export function toMajority(members: number): number {
  return (members >> 1) + 1;
}

export class QuorumClaim {
  /** The claim as the members get it, without a floor: the token of a vote then shows the member's clock. */
  readonly claim: Claim;
  /** No token below this may be granted. */
  readonly floor: bigint;
  readonly ttlMs: number;
  readonly memberClaims: readonly MemberClaim[];
  readonly majority: number;
  /** The grant's token; null: not granted yet. */
  token: bigint | null = null;
  tokens = 1;
  /** Made by this client. For a claim of another client, only entries found at the members count, and none are made. */
  isOurs = false;
  /** A token claim was made, or found. */
  hasTokenClaim = false;
  tokenRequest: Promise<boolean> | null = null;
  /** How many driver calls are handling it; these see its changes themselves. */
  activeCalls = 0;
  /** Released, or reported as gone: nothing more is done about it. */
  isDone = false;
  /** Ended without a release call: late grants are released when they arrive. */
  isAbandoned = false;
  /** When a minority of votes is released; null: the votes are not split. */
  backOffAt: number | null = null;
  backOffCount = 0;
  /** It lost its majority after it had made a token claim. */
  #hasLostMajority = false;

  constructor(claim: Claim, members: number) {
    // a member's grant is a vote: only a majority of them is a grant that may be handed on
    this.claim = claim.floor === 0n && !claim.successors ? claim : { ...claim, floor: 0n, successors: false };
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
    const endsAt = believedUntil(sentAt, answer.remainingMs, this.ttlMs);
    memberClaim.endsAt = Math.max(memberClaim.endsAt, endsAt);
    memberClaim.earlyGrant = null;
    if (isOlder && earlyGrant !== null) {
      memberClaim.state = "held";
      memberClaim.token = earlyGrant;
      return;
    }
    if (answer.state === "waiting" && memberClaim.state === "held") this.#loseMember(memberClaim, memberClaim.endsAt);
    memberClaim.state = answer.state;
    if (answer.state === "held") {
      memberClaim.token = answer.token;
      if (call > memberClaim.recalledAfterCall) memberClaim.isRecalled = answer.recalled === true;
    } else memberClaim.recheckMs = answer.recheckMs;
  }

  /** The member has recalled the claim. False: the others' recalls are known, and this one repeats them. */
  onRecalled(index: number): boolean {
    const memberClaim = this.memberClaims[index] as MemberClaim;
    // each member pushes the same one; when a waiter asks again, each does so once more
    const isNews = memberClaim.isRecalled || !this.isRecalled;
    memberClaim.isRecalled = true;
    memberClaim.recalledAfterCall = memberClaim.callCount;
    return isNews;
  }

  /** Does another claim wait for this one at any member? */
  get isRecalled(): boolean {
    return this.claim.recall === true && this.memberClaims.some(({ isRecalled }) => isRecalled);
  }

  /** Applies a push. False: the push is only a hint, and the claim must be rechecked. */
  onPush(index: number, answer: Answer, now: number): boolean {
    const memberClaim = this.memberClaims[index] as MemberClaim;
    if (memberClaim.isReleasePending || answer.state === "waiting") return true;
    this.countHeld(now);
    // before the first answer, a second call may also have made the entry again
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
    // an unknown entry has no lease to count; the answer in flight has one
    if (memberClaim.state === "unknown") memberClaim.earlyGrant = answer.token;
    if (answer.recalled === true) memberClaim.isRecalled = true;
    if (memberClaim.state !== "waiting") return true;
    memberClaim.state = "held";
    memberClaim.token = answer.token;
    return true;
  }

  /** The token of the member's vote while it is one; null: it is none. */
  heldTokens(index: number, now: number): TokenRange | null {
    const { state, endsAt, token } = this.memberClaims[index] as MemberClaim;
    return state === "held" && endsAt > now ? { token, tokenCount: 1 } : null;
  }

  /** The vote is being released. */
  startRelease(index: number): void {
    const memberClaim = this.memberClaims[index] as MemberClaim;
    resetMemberClaim(memberClaim);
    memberClaim.isReleasePending = true;
    memberClaim.lastAnsweredCall = memberClaim.callCount + 1;
  }

  /** The member has answered the release. */
  confirmRelease(index: number): void {
    (this.memberClaims[index] as MemberClaim).isReleasePending = false;
  }

  /**
   * Counts the votes that are valid by this client's clock. It must be called before any of them changes: so it notices
   * every moment without a majority.
   */
  countHeld(now: number): number {
    const held = countMatching(
      this.memberClaims,
      (memberClaim) => memberClaim.state === "held" && memberClaim.endsAt > now,
    );
    if (this.hasTokenClaim && held < this.majority) this.#hasLostMajority = true;
    return this.#hasLostMajority ? 0 : held;
  }

  /** Has a majority answered "held", each to a call that was sent after its connection broke last? */
  isConfirmed(now: number): boolean {
    const confirmed = countMatching(
      this.memberClaims,
      ({ state, endsAt, lastAnsweredCall, brokenAfterCall }) =>
        state === "held" && endsAt > now && lastAnsweredCall > brokenAfterCall,
    );
    return confirmed >= this.majority && this.countHeld(now) >= this.majority;
  }

  /** Counts the entries that are valid by this client's clock, held or waiting. */
  countEntries(now: number): number {
    return countMatching(
      this.memberClaims,
      (memberClaim) => (memberClaim.state === "held" || memberClaim.state === "waiting") && memberClaim.endsAt > now,
    );
  }

  /** Counts the members that have not answered yet. */
  countUnknown(): number {
    return countMatching(this.memberClaims, ({ state }) => state === "unknown");
  }

  /** Until when a majority of the votes is valid: the earliest end among the majority that ends last. */
  heldUntil(): number {
    return this.#majorityEndsAt((memberClaim) => memberClaim.state === "held");
  }

  /**
   * Until when a majority of the entries is valid, less a little. So the client never relies on a pushed majority for
   * longer than it is valid, and it is seldom valid for less time than reported.
   */
  enqueuedUntil(): number {
    return (
      this.#majorityEndsAt((memberClaim) => memberClaim.state === "held" || memberClaim.state === "waiting") -
      PUSH_SLACK_SHARE * this.ttlMs
    );
  }

  /** Has it some votes, but not a majority? */
  isSplit(now: number): boolean {
    const held = this.countHeld(now);
    return held > 0 && held < this.majority;
  }

  /** No call of it is in flight, or may be. */
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
   * The member's clock in microseconds, as the token of its vote shows it. This is right if each key has its own
   * tokens. If keys share tokens, token claims use them, too, and floors derived from them would run ahead of each
   * other.
   */
  clockOfMember(index: number): bigint {
    const memberClaim = this.memberClaims[index];
    return memberClaim?.state === "held" ? memberClaim.token : 0n;
  }

  /** endsAt: until when an entry remains. */
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

/** The quorum claims of one client by id. */
export class QuorumClaims {
  readonly #members: number;
  readonly #byId = new Map<ClaimId, QuorumClaim>();

  constructor(members: number) {
    this.#members = members;
  }

  get(id: ClaimId): QuorumClaim | undefined {
    return this.#byId.get(id);
  }

  /** The quorum claim of this claim; a new one, with unknown entries, if another client made it. */
  getOrCreate(claim: Claim): QuorumClaim {
    let quorumClaim = this.#byId.get(claim.id);
    if (quorumClaim === undefined) {
      quorumClaim = new QuorumClaim(claim, this.#members);
      this.#byId.set(claim.id, quorumClaim);
    }
    return quorumClaim;
  }

  /** The connection to the member broke. */
  onDisconnected(index: number): void {
    for (const { memberClaims } of this.#byId.values()) {
      const memberClaim = memberClaims[index] as MemberClaim;
      memberClaim.brokenAfterCall = memberClaim.callCount;
    }
  }

  /** Removes the claim and marks it done. */
  remove(claim: Claim): QuorumClaim {
    const quorumClaim = this.#byId.get(claim.id) ?? new QuorumClaim(claim, this.#members);
    this.#byId.delete(claim.id);
    quorumClaim.isDone = true;
    return quorumClaim;
  }
}

/**
 * The remaining lease to report for one that ends at `endsAt`, in the answer of a call that began at `startedAt`: the
 * client relies on nine tenths of it.
 */
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
    isRecalled: false,
    recalledAfterCall: 0,
    isReleasePending: false,
    brokenAfterCall: -1,
    mayHaveOlderEntry: false,
  };
}

function resetMemberClaim(memberClaim: MemberClaim): void {
  memberClaim.mayHaveOlderEntry = true;
  memberClaim.state = "none";
  memberClaim.earlyGrant = null;
  memberClaim.endsAt = 0;
  memberClaim.isRecalled = false;
}

function countMatching(memberClaims: readonly MemberClaim[], isCounted: (memberClaim: MemberClaim) => boolean): number {
  let sum = 0;
  for (const memberClaim of memberClaims) if (isCounted(memberClaim)) sum++;
  return sum;
}
