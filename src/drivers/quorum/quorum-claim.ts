/**
 * One claim across the members: what its member claims are together (member-claim.ts), and its token. Pure: it gets the
 * time as a parameter and calls nothing.
 *
 * Invariants
 * - A recall of one member counts: the claim that waits there waits for this vote.
 * - A majority that includes a vote which its member has not confirmed since its connection broke is neither a grant
 *   nor the answer to a renewal: it is unknown.
 * - A claim that has made a token claim and then had no majority of votes for a moment never has one again: another
 *   claim may have been granted meanwhile, with a higher token, and have ended already.
 */

import { BELIEVED_SHARE } from "../../claim/lease-shares.ts";
import type { Answer, Claim, ClaimId, TokenRange } from "../../spi/driver.ts";
import { MemberClaim } from "./member-claim.ts";

/**
 * How far the claim has come. The states in driver.ts follow from this, from the votes, and from the entries of its
 * members.
 *   voting    it has made no token claim, as far as known
 *   agreeing  it has made one, and the members agree on one token
 *   granted   a majority has given one token; tokens: what they have reserved
 *   lost      it had no majority of votes for a moment since it made a token claim; tokens: what it had been granted
 *             before
 */
type Phase =
  | { readonly kind: "voting" | "agreeing"; readonly tokens: null }
  | { readonly kind: "granted"; readonly tokens: TokenRange }
  | { readonly kind: "lost"; readonly tokens: TokenRange | null };

/**
 *   released   released, or reported as gone: nothing more is done about it
 *   abandoned  ended without a release call: late grants are released when they arrive
 */
type QuorumClaimEnd = "released" | "abandoned";

/** The token claim of the claim at one member (tokens.ts). */
export class MemberTokenClaim {
  /** `claim` calls that are in flight or have failed. */
  unansweredCalls = 0;
  /** The member has lost the token claim and got a replacement. */
  isReplaced = false;

  /** May a `claim` call still arrive? */
  get mayClaimArrive(): boolean {
    return this.unansweredCalls > 0;
  }
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
  readonly majority: number;
  readonly #memberClaims: readonly MemberClaim[];
  readonly #tokenClaims: readonly MemberTokenClaim[];
  #phase: Phase = { kind: "voting", tokens: null };
  /** null: it has not ended. */
  end: QuorumClaimEnd | null = null;
  /** Made by this client. For a claim of another client, only entries found at the members count, and none are made. */
  isOurs = false;
  tokenRequest: Promise<boolean> | null = null;
  /** How many driver calls are handling it; these see its changes themselves. */
  activeCalls = 0;
  /** When a minority of votes is released; null: the votes are not split. */
  backOffAt: number | null = null;
  backOffCount = 0;

  constructor(claim: Claim, members: number) {
    // a member's grant is a vote: only a majority of them is a grant that may be handed on
    this.claim = claim.floor === 0n && !claim.successors ? claim : { ...claim, floor: 0n, successors: false };
    this.floor = claim.floor;
    this.ttlMs = claim.ttlMs === "session" ? 0 : claim.ttlMs;
    this.majority = toMajority(members);
    this.#memberClaims = Array.from({ length: members }, () => new MemberClaim());
    this.#tokenClaims = Array.from({ length: members }, () => new MemberTokenClaim());
  }

  get isDone(): boolean {
    return this.end !== null;
  }

  /** The grant's tokens; null: not granted yet. */
  get tokens(): TokenRange | null {
    return this.#phase.tokens;
  }

  /** A token claim was made, or found. */
  get hasTokenClaim(): boolean {
    return this.#phase.kind !== "voting";
  }

  onTokenClaim(): void {
    if (this.#phase.kind === "voting") this.#phase = { kind: "agreeing", tokens: null };
  }

  onTokensAgreed(tokens: TokenRange): void {
    this.#phase = { kind: this.#phase.kind === "lost" ? "lost" : "granted", tokens };
  }

  memberClaim(index: number): MemberClaim {
    return this.#memberClaims[index] as MemberClaim;
  }

  tokenClaim(index: number): MemberTokenClaim {
    return this.#tokenClaims[index] as MemberTokenClaim;
  }

  /** The member answered call number `call`, sent at `sentAt`. */
  onAnswer(index: number, call: number, sentAt: number, answer: Answer, now: number): void {
    const memberClaim = this.memberClaim(index);
    if (!memberClaim.isCurrent(call)) return;
    this.#countVotes(now);
    const wasVote = memberClaim.isVote;
    memberClaim.onAnswer(call, sentAt, answer, this.ttlMs);
    this.#noteLostVote(wasVote, memberClaim);
  }

  /** Applies a push. False: the push is only a hint, and the claim must be rechecked. */
  onPush(index: number, answer: Answer, now: number): boolean {
    const memberClaim = this.memberClaim(index);
    if (memberClaim.state.kind === "releasing" || answer.state === "waiting") return true;
    this.#countVotes(now);
    const wasVote = memberClaim.isVote;
    const isApplied = memberClaim.onPush(answer);
    this.#noteLostVote(wasVote, memberClaim);
    return isApplied;
  }

  /** The member has recalled the claim. False: the others' recalls are known, and this one repeats them. */
  onRecalled(index: number): boolean {
    const memberClaim = this.memberClaim(index);
    // each member pushes the same one; when a waiter asks again, each does so once more
    const isNews = memberClaim.isRecalled || !this.isRecalled;
    memberClaim.onRecalled();
    return isNews;
  }

  /** Does another claim wait for this one at any member? */
  get isRecalled(): boolean {
    return this.claim.recall === true && this.#memberClaims.some(({ isRecalled }) => isRecalled);
  }

  /** The token of the member's vote while it is one; null: it is none. */
  heldTokens(index: number, now: number): TokenRange | null {
    const { state } = this.memberClaim(index);
    return state.kind === "held" && state.endsAt > now ? { token: state.token, tokenCount: 1 } : null;
  }

  /** Has it a majority of votes that are valid by this client's clock? */
  hasMajority(now: number): boolean {
    return this.#countVotes(now) >= this.majority;
  }

  /** Has a majority answered "held", each to a call that was sent after its connection broke last? */
  isConfirmed(now: number): boolean {
    const confirmed = this.#count((memberClaim) => memberClaim.isConfirmedVote(now));
    return confirmed >= this.majority && this.hasMajority(now);
  }

  /** Has it some votes, but not a majority? */
  isSplit(now: number): boolean {
    const votes = this.#countVotes(now);
    return votes > 0 && votes < this.majority;
  }

  /** Has a majority an entry that is valid by this client's clock, held or waiting? */
  hasEntries(now: number): boolean {
    return this.#count(({ endsAt }) => endsAt > now) >= this.majority;
  }

  /** May a majority have an entry, if the members that have not answered yet have one? */
  mayHaveEntries(now: number): boolean {
    return this.#count(({ state, endsAt }) => state.kind === "unknown" || endsAt > now) >= this.majority;
  }

  /** Until when a majority of the votes is valid: the earliest end among the majority that ends last. */
  votesEndAt(): number {
    return this.#majorityEndsAt((memberClaim) => memberClaim.isVote);
  }

  /**
   * Until when a majority of the entries is valid, less a little. So the client never relies on a pushed majority for
   * longer than it is valid, and it is seldom valid for less time than reported.
   */
  entriesEndAt(): number {
    return (
      this.#majorityEndsAt(({ state }) => state.kind === "held" || state.kind === "waiting") -
      PUSH_SLACK_SHARE * this.ttlMs
    );
  }

  /** No call of it is in flight, or may be. */
  get isSettled(): boolean {
    return this.#memberClaims.every(({ state, mayClaimArrive }) => state.kind !== "releasing" && !mayClaimArrive);
  }

  recheckMs(): number {
    let soonest = this.ttlMs;
    for (const { state } of this.#memberClaims)
      if (state.kind === "waiting") soonest = Math.min(soonest, state.recheckMs);
    return Math.max(soonest, 1);
  }

  /**
   * The member's clock in microseconds, as the token of its vote shows it. This is right if each key has its own
   * tokens. If keys share tokens, token claims use them, too, and floors derived from them would run ahead of each
   * other.
   */
  clockOfMember(index: number): bigint {
    const { state } = this.memberClaim(index);
    return state.kind === "held" ? state.token : 0n;
  }

  /** It must be called before any vote changes: so it notices every moment without a majority. */
  #countVotes(now: number): number {
    const votes = this.#count((memberClaim) => memberClaim.isValidVote(now));
    if (votes < this.majority) this.#loseMajority();
    return this.#phase.kind === "lost" ? 0 : votes;
  }

  #noteLostVote(wasVote: boolean, { isVote }: MemberClaim): void {
    if (!wasVote || isVote || !this.hasTokenClaim) return;
    if (this.#count((memberClaim) => memberClaim.isVote) < this.majority) this.#loseMajority();
  }

  #loseMajority(): void {
    if (this.hasTokenClaim) this.#phase = { kind: "lost", tokens: this.tokens };
  }

  #count(isCounted: (memberClaim: MemberClaim) => boolean): number {
    let sum = 0;
    for (const memberClaim of this.#memberClaims) if (isCounted(memberClaim)) sum++;
    return sum;
  }

  #majorityEndsAt(isCounted: (memberClaim: MemberClaim) => boolean): number {
    const ends = this.#memberClaims.filter(isCounted).map(({ endsAt }) => endsAt);
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
    for (const quorumClaim of this.#byId.values()) quorumClaim.memberClaim(index).onDisconnected();
  }

  /** Removes the claim, which has ended. */
  remove(claim: Claim, end: QuorumClaimEnd = "released"): QuorumClaim {
    const quorumClaim = this.#byId.get(claim.id) ?? new QuorumClaim(claim, this.#members);
    this.#byId.delete(claim.id);
    quorumClaim.end = end;
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
