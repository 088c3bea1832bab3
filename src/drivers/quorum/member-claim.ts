/**
 * A claim at one member, as this client knows it: an entry in the queue of its key there, or none. An entry that its
 * member has granted is a vote. Pure: it gets the time as a parameter and calls nothing.
 *
 *   unknown    the member has not answered yet. A grant that it has pushed counts as soon as it answers: before, no
 *              lease is known
 *   none       the member has no entry, as far as known
 *   releasing  the entry, a vote, is being released: it may be claimed again only when the member has answered that,
 *              since a release still in flight would end the new entry. After a failed release this takes a lease more
 *   waiting    the entry waits
 *   held       the entry is a vote
 *
 * Invariants
 * - `endsAt` is a time until which that member certainly keeps the entry, by this client's clock: nine tenths of the
 *   remaining lease, counted from when the answered call was SENT (decision 0003). A push does not move it.
 * - An answer counts only if no later call to that member was answered before; "waiting" is ignored if its call was
 *   sent before the grant was pushed.
 * - A push may use another connection than answers. It may come late: it says nothing about an entry that was made
 *   again. It may also overtake the first answer about its entry: then it counts as soon as that answer arrives.
 * - A recall ends with the vote, or with an answer to a later call that does not repeat it.
 * - A vote whose member's connection broke since its last answer keeps its lease for a holder, but confirms nothing:
 *   the member may have come back empty.
 */

import { believedUntil } from "../../claim/lease-deadline.ts";
import type { Answer } from "../../spi/driver.ts";

export type MemberClaimState =
  /** `earlyGrant`: the token of a grant that was pushed before the first answer; null: there was none. */
  | { readonly kind: "unknown"; readonly earlyGrant: bigint | null }
  | { readonly kind: "none" }
  | { readonly kind: "releasing" }
  /** `recheckMs`: the latest time to recheck, in milliseconds from the answer. */
  | { readonly kind: "waiting"; readonly endsAt: number; readonly recheckMs: number }
  /** `token`: the member's own token for this vote. */
  | { readonly kind: "held"; readonly endsAt: number; readonly token: bigint };

const NONE: MemberClaimState = { kind: "none" };

export class MemberClaim {
  #state: MemberClaimState = { kind: "unknown", earlyGrant: null };
  /** Another claim waits for this vote, as the member has said. */
  #isRecalled = false;
  /** The member may have had an older entry of this claim: a push may be about that one. */
  #mayHaveOlderEntry = false;
  /** `claim` calls in flight. */
  #claimsInFlight = 0;
  /** A `claim` call has failed: it may still arrive. */
  #hasFailedClaim = false;
  /**
   * Calls are numbered. How many were sent to the member, the latest answered one, and the latest one sent before each
   * of three events.
   */
  #callCount = 0;
  #lastAnsweredCall = 0;
  #lastCallBeforePush = 0;
  #lastCallBeforeRecall = 0;
  #lastCallBeforeBreak = -1;

  get state(): MemberClaimState {
    return this.#state;
  }

  get isRecalled(): boolean {
    return this.#isRecalled;
  }

  /** Until when an entry is certainly kept; 0: there is none. */
  get endsAt(): number {
    return this.#state.kind === "waiting" || this.#state.kind === "held" ? this.#state.endsAt : 0;
  }

  /** The member has no entry that may be renewed. */
  get isAbsent(): boolean {
    return this.#state.kind === "none" || this.#state.kind === "releasing";
  }

  get isVote(): boolean {
    return this.#state.kind === "held";
  }

  /** Is it a vote that is valid by this client's clock? */
  isValidVote(now: number): boolean {
    return this.isVote && this.endsAt > now;
  }

  /** Has the member confirmed the vote since its connection broke last? */
  isConfirmedVote(now: number): boolean {
    return this.isValidVote(now) && this.#lastAnsweredCall > this.#lastCallBeforeBreak;
  }

  get isClaimInFlight(): boolean {
    return this.#claimsInFlight > 0;
  }

  get hasFailedClaim(): boolean {
    return this.#hasFailedClaim;
  }

  /** May a `claim` call still arrive? */
  get mayClaimArrive(): boolean {
    return this.isClaimInFlight || this.#hasFailedClaim;
  }

  /** A call is being sent; returns its number. */
  startCall(): number {
    return ++this.#callCount;
  }

  claimSent(): void {
    this.#claimsInFlight++;
  }

  claimSettled(hasFailed: boolean): void {
    this.#claimsInFlight--;
    this.#hasFailedClaim ||= hasFailed;
  }

  /** Does an answer to this call count? */
  isCurrent(call: number): boolean {
    return this.#state.kind !== "releasing" && call >= this.#lastAnsweredCall;
  }

  /** The member has answered a current call, sent at `sentAt`. */
  onAnswer(call: number, sentAt: number, answer: Answer, ttlMs: number): void {
    const state = this.#state;
    const earlyGrant = state.kind === "unknown" ? state.earlyGrant : null;
    const isOlderThanPush = answer.state === "waiting" && call <= this.#lastCallBeforePush;
    if (isOlderThanPush && earlyGrant === null) return;
    this.#lastAnsweredCall = call;
    if (answer.state === "none") return this.#loseEntry();
    const endsAt = Math.max(this.endsAt, believedUntil(sentAt, answer.remainingMs, ttlMs));
    if (answer.state === "held") {
      this.#state = { kind: "held", endsAt, token: answer.token };
      if (call > this.#lastCallBeforeRecall) this.#isRecalled = answer.recalled === true;
    } else if (isOlderThanPush && earlyGrant !== null) this.#state = { kind: "held", endsAt, token: earlyGrant };
    else {
      if (state.kind === "held") this.#loseEntry();
      this.#state = { kind: "waiting", endsAt, recheckMs: answer.recheckMs };
    }
  }

  /** The member has pushed a grant or a loss. False: the push is only a hint. */
  onPush(answer: Exclude<Answer, { state: "waiting" }>): boolean {
    // before the first answer, a second call may also have made the entry again
    const isRepeated = this.#mayHaveOlderEntry || (this.#state.kind === "unknown" && this.#callCount > 1);
    if (answer.state === "held" && isRepeated) return false;
    this.#lastCallBeforePush = this.#callCount;
    if (answer.state === "none") {
      this.#loseEntry();
      return false;
    }
    if (answer.recalled === true) this.#isRecalled = true;
    // an unknown entry has no lease to count; the answer in flight has one
    if (this.#state.kind === "unknown") this.#state = { kind: "unknown", earlyGrant: answer.token };
    else if (this.#state.kind === "waiting")
      this.#state = { kind: "held", endsAt: this.#state.endsAt, token: answer.token };
    return true;
  }

  onRecalled(): void {
    this.#isRecalled = true;
    this.#lastCallBeforeRecall = this.#callCount;
  }

  /** The connection to the member broke. */
  onDisconnected(): void {
    this.#lastCallBeforeBreak = this.#callCount;
  }

  startRelease(): void {
    this.#loseEntry();
    this.#state = { kind: "releasing" };
    this.#lastAnsweredCall = this.#callCount + 1;
  }

  /** The member has answered the release. */
  confirmRelease(): void {
    if (this.#state.kind === "releasing") this.#state = NONE;
  }

  #loseEntry(): void {
    this.#state = NONE;
    this.#isRecalled = false;
    this.#mayHaveOlderEntry = true;
  }
}
