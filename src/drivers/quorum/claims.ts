/** Coordinates one claim across the members. driver.ts has the states and the safety argument. */

import { isFatalError } from "../../errors.ts";
import type { Answer, ClaimId, Driver, Pause, TokenRange } from "../../spi/driver.ts";
import { backoffMs } from "../../util/backoff.ts";
import type { Clock } from "../../util/clock.ts";
import { sleep } from "../../util/timeout.ts";
import type { Member, MemberCall } from "./member.ts";
import { waitForMembers } from "./member.ts";
import type { QuorumClaim, QuorumClaims } from "./quorum-claim.ts";
import { toRemainingMs } from "./quorum-claim.ts";
import { releaseClaims } from "./releases.ts";
import { Tally } from "./tally.ts";
import { agreeOnToken, renewTokenClaims } from "./tokens.ts";

const NONE: Answer = { state: "none" };

/** How often a claim that does not wait is tried when its votes are a minority. */
const MAX_TRIES = 3;

/**
 * A claim with a minority of votes backs off after a random time. Its limit starts as after FIRST_BACKOFF_FAILURES
 * failures in util/backoff.ts, and doubles.
 */
const FIRST_BACKOFF_FAILURES = 3;
const MAX_BACKOFF_MS = 2_000;

/** The members are asked once about a claim: what they have answered, since when, and until when. */
interface Round {
  readonly tally: Tally;
  readonly startedAt: number;
  readonly deadline: number;
}

export interface ClaimCoordinatorOptions {
  readonly members: readonly Member[];
  readonly claims: QuorumClaims;
  readonly clock: Clock;
  readonly time: () => number;
  readonly random: () => number;
  /** The time limit of a call for this claim. */
  readonly getTimeoutMs: (quorumClaim: QuorumClaim) => number;
  readonly pushed: (id: ClaimId, answer: Answer) => void;
  readonly recheck: (id: ClaimId) => void;
}

export class ClaimCoordinator {
  readonly #members: readonly Member[];
  readonly #claims: QuorumClaims;
  readonly #time: () => number;
  readonly #random: () => number;
  readonly #options: ClaimCoordinatorOptions;

  constructor(options: ClaimCoordinatorOptions) {
    this.#members = options.members;
    this.#claims = options.claims;
    this.#time = options.time;
    this.#random = options.random;
    this.#options = options;
  }

  async claim(quorumClaim: QuorumClaim, deadline: number): Promise<Answer> {
    for (let attempt = 1; ; attempt++) {
      const tally = new Tally(this.#members.length);
      const round = { tally, startedAt: this.#time(), deadline };
      const calls = this.#members.map((member) => this.#askMember(quorumClaim, member, tally));
      await waitForMembers(calls, () => tally.isDecided, deadline - round.startedAt);
      const isSplit = tally.paused === undefined && quorumClaim.isSplit(this.#time());
      const mayHold = quorumClaim.hasMajority(this.#time()) || quorumClaim.hasTokenClaim;
      if (quorumClaim.claim.wait || mayHold) return this.resolveStatus(quorumClaim, round);
      const answer = await this.#computeStatus(quorumClaim, round);
      if (answer.state !== "none" || quorumClaim.isDone) return answer;
      // "none" must leave no trace: release the votes; members remember the calls that may still arrive
      await this.#releaseVotes(quorumClaim, deadline);
      const delayMs = backoffMs(attempt, this.#random(), MAX_BACKOFF_MS);
      const mayRetry = isSplit && attempt < MAX_TRIES && this.#time() + delayMs < deadline && quorumClaim.isSettled;
      if (!mayRetry) {
        this.#abandon(quorumClaim);
        return { ...NONE, ...toPausedField(tally) };
      }
      await sleep(this.#options.clock, delayMs);
      if (quorumClaim.isDone) return NONE;
    }
  }

  /**
   * Ends a claim that is not held: a late grant is released when it arrives; an unanswered release is repeated by its
   * member.
   */
  #abandon(quorumClaim: QuorumClaim): void {
    this.#claims.remove(quorumClaim.claim, "abandoned");
    for (const member of this.#members) {
      const { state, hasFailedClaim } = quorumClaim.memberClaim(member.index);
      if (hasFailedClaim || state.kind === "releasing") member.addPendingRelease(quorumClaim.claim, quorumClaim.ttlMs);
    }
  }

  /** Asks one member about the claim: sends `claim` if no entry is known there, else `renew`. */
  #askMember(quorumClaim: QuorumClaim, member: Member, tally: Tally | null): MemberCall {
    const { claim } = quorumClaim;
    const memberClaim = quorumClaim.memberClaim(member.index);
    const { kind } = memberClaim.state;
    if (kind === "releasing") {
      tally?.addError(new Error(`quorum: member ${member.index} has not answered a release`));
      return { member, settled: Promise.resolve() };
    }
    const needsClaim = kind === "none" || kind === "unknown";
    const call = memberClaim.startCall();
    const sentAt = this.#time();
    const isSent = member.isOpen && needsClaim;
    if (isSent) memberClaim.claimSent();
    const work = async (driver: Driver): Promise<Answer> => {
      if (needsClaim) return driver.claim(claim);
      const [answer] = await driver.renew([claim]);
      if (answer === undefined) throw createMissingAnswerError(member);
      return answer;
    };
    const settled = member.call(work).then(
      (answer) => {
        if (isSent) memberClaim.claimSettled(false);
        member.observeClock(answer, sentAt);
        quorumClaim.onAnswer(member.index, call, sentAt, answer, this.#time());
        tally?.add(answer);
        if (quorumClaim.end === "abandoned" && answer.state !== "none") this.#releaseLateGrant(quorumClaim, member);
        this.onChange(quorumClaim);
      },
      (error: unknown) => {
        if (isSent) memberClaim.claimSettled(true);
        if (quorumClaim.end === "abandoned") member.addPendingRelease(claim, quorumClaim.ttlMs);
        tally?.addError(error);
      },
    );
    return { member, settled };
  }

  /** Releases a grant that arrived after the claim was abandoned. */
  #releaseLateGrant({ claim, ttlMs }: QuorumClaim, member: Member): void {
    member
      .call((driver) => driver.release([{ claim, hasUnansweredClaim: false }]))
      .catch(() => member.addPendingRelease(claim, ttlMs));
  }

  /**
   * Sends one call for all claims that may have an entry at this member, and one for their token claims, without
   * waiting for it.
   */
  renewAt(member: Member, quorumClaims: readonly QuorumClaim[], tallies: readonly Tally[]): MemberCall[] {
    const sentAt = this.#time();
    const items = quorumClaims.flatMap((quorumClaim, index) => {
      const memberClaim = quorumClaim.memberClaim(member.index);
      if (memberClaim.isAbsent) {
        tallies[index]?.addNotAsked();
        return [];
      }
      return [{ quorumClaim, tally: tallies[index] as Tally, call: memberClaim.startCall() }];
    });
    if (items.length === 0) return [];
    const settled = member
      .call((driver) => driver.renew(items.map(({ quorumClaim }) => quorumClaim.claim)))
      .then(
        (answers) => {
          for (const [index, { quorumClaim, tally, call }] of items.entries()) {
            const answer = answers[index];
            if (answer === undefined) {
              tally.addError(createMissingAnswerError(member));
              continue;
            }
            member.observeClock(answer, sentAt);
            quorumClaim.onAnswer(member.index, call, sentAt, answer, this.#time());
            tally.add(answer);
            this.onChange(quorumClaim);
          }
        },
        (error: unknown) => {
          for (const { tally } of items) tally.addError(error);
        },
      );
    renewTokenClaims(
      member,
      items.map(({ quorumClaim }) => quorumClaim),
    );
    return [{ member, settled }];
  }

  /** Derives the claim's answer from the members' answers. @throws (rejects) if the answer is unknown */
  async resolveStatus(quorumClaim: QuorumClaim, round: Round): Promise<Answer> {
    const { deadline } = round;
    const answer = await this.#computeStatus(quorumClaim, round).catch(async (error: unknown) => {
      // refused permanently: leave no trace
      if (isFatalError(error) && quorumClaim.isOurs && !quorumClaim.isDone)
        await this.#releaseEverywhere(quorumClaim, deadline);
      throw error;
    });
    // "none" always means no trace
    if (answer.state === "none" && !quorumClaim.isDone) await this.#releaseEverywhere(quorumClaim, deadline);
    return answer;
  }

  async #computeStatus(quorumClaim: QuorumClaim, round: Round): Promise<Answer> {
    const { tally, startedAt, deadline } = round;
    const now = this.#time();
    if (quorumClaim.isDone) return NONE;
    if (quorumClaim.hasMajority(now)) {
      quorumClaim.backOffAt = null;
      const hasToken = await this.#ensureToken(quorumClaim, deadline);
      if (quorumClaim.isDone) return NONE;
      if (!hasToken) throw new Error("quorum: a majority has granted the claim, but has not agreed on its token yet");
      if (quorumClaim.isConfirmed(this.#time())) return toHeldAnswer(quorumClaim, startedAt);
      throw new Error("quorum: fewer than a majority have confirmed the claim since their connections broke");
    }
    if (quorumClaim.hasTokenClaim || !quorumClaim.mayHaveEntries(now)) return tally.noneAnswer;
    if (quorumClaim.claim.wait ? !quorumClaim.hasEntries(now) : !tally.count.hasMajorityAnswered)
      throw tally.count.failure;
    if (!quorumClaim.claim.wait) return NONE;
    if (!quorumClaim.isSplit(now)) quorumClaim.backOffAt = null;
    else {
      quorumClaim.backOffAt ??=
        now + backoffMs(FIRST_BACKOFF_FAILURES + quorumClaim.backOffCount, this.#random(), MAX_BACKOFF_MS);
      if (now >= quorumClaim.backOffAt) {
        await this.#backOff(quorumClaim, deadline);
        // the members may have admitted others meanwhile, or this claim
        if (quorumClaim.hasMajority(this.#time())) return this.#computeStatus(quorumClaim, round);
      }
    }
    const recheckMs =
      quorumClaim.backOffAt === null
        ? quorumClaim.recheckMs()
        : Math.min(quorumClaim.recheckMs(), quorumClaim.backOffAt - now);
    const ttlMs = toRemainingMs(quorumClaim.entriesEndAt(), startedAt, quorumClaim.ttlMs);
    return {
      state: "waiting",
      remainingMs: Math.max(ttlMs, 1),
      recheckMs: Math.max(recheckMs, 1),
      ...toPausedField(tally),
    };
  }

  /** Releases a minority of votes and enqueues the claim again, behind the others. */
  async #backOff(quorumClaim: QuorumClaim, deadline: number): Promise<void> {
    quorumClaim.backOffCount++;
    quorumClaim.backOffAt = null;
    await this.#releaseVotes(quorumClaim, deadline);
    if (quorumClaim.isDone) return; // released meanwhile
    const members = this.#members.filter(({ index }) => quorumClaim.memberClaim(index).isAbsent);
    await waitForMembers(
      members.map((member) => this.#askMember(quorumClaim, member, null)),
      () => false,
      deadline - this.#time(),
    );
  }

  /**
   * Releases the votes at members without a `claim` call in flight: a member must answer the release before it gets the
   * claim again.
   */
  async #releaseVotes(quorumClaim: QuorumClaim, deadline: number): Promise<void> {
    const { claim } = quorumClaim;
    const releasing = this.#members.filter(({ index }) => {
      const { isVote, isClaimInFlight } = quorumClaim.memberClaim(index);
      return isVote && !isClaimInFlight;
    });
    const calls = releasing.map((member) => {
      const memberClaim = quorumClaim.memberClaim(member.index);
      memberClaim.startRelease();
      const onReleased = (): void => memberClaim.confirmRelease();
      const onFailed = (): void => member.addPendingRelease(claim, quorumClaim.ttlMs, onReleased);
      const answered = member.call((driver) => driver.release([{ claim, hasUnansweredClaim: false }]));
      return { member, settled: answered.then(onReleased, onFailed) };
    });
    await waitForMembers(calls, () => false, deadline - this.#time());
  }

  async #releaseEverywhere(quorumClaim: QuorumClaim, deadline: number): Promise<void> {
    const release = { quorumClaim: this.#claims.remove(quorumClaim.claim), hasUnansweredClaim: false };
    const remainingMs = Math.max(deadline - this.#time(), 1);
    // members repeat the releases that they have not answered
    await releaseClaims(this.#members, [release], remainingMs).catch(() => undefined);
  }

  /** Claims an entry again at members that have lost it or never had it, without waiting. */
  restoreEntries(quorumClaim: QuorumClaim): void {
    // a claim of another client may have been released, unless a majority was found to hold it
    if (quorumClaim.isDone || (!quorumClaim.isOurs && quorumClaim.tokens === null)) return;
    for (const member of this.#members) {
      const { kind } = quorumClaim.memberClaim(member.index).state;
      if (kind === "releasing") member.flushReleases();
      else if (kind === "none") this.#askMember(quorumClaim, member, null);
    }
  }

  #ensureToken(quorumClaim: QuorumClaim, deadline: number): Promise<boolean> {
    if (quorumClaim.tokens !== null) return Promise.resolve(true);
    quorumClaim.tokenRequest ??= agreeOnToken({
      members: this.#members,
      quorumClaim,
      time: this.#time,
      deadline,
    }).finally(() => {
      quorumClaim.tokenRequest = null;
    });
    return quorumClaim.tokenRequest;
  }

  /**
   * A member's answer changed while no verb handles the claim: turns a new majority of votes into a grant and pushes
   * it.
   */
  onChange(quorumClaim: QuorumClaim): void {
    if (
      quorumClaim.isDone ||
      quorumClaim.activeCalls > 0 ||
      quorumClaim.tokens !== null ||
      quorumClaim.tokenRequest !== null
    )
      return;
    if (!quorumClaim.hasMajority(this.#time())) return;
    const { id } = quorumClaim.claim;
    this.#ensureToken(quorumClaim, this.#time() + this.#options.getTimeoutMs(quorumClaim)).then(
      (hasToken) => {
        const now = this.#time();
        if (quorumClaim.isDone) return;
        if (hasToken && quorumClaim.isConfirmed(now)) this.#options.pushed(id, toPushedAnswer(quorumClaim, now));
        else this.#options.recheck(id);
      },
      () => this.#options.recheck(id), // the recheck reports the error
    );
  }
}

/** Unknown is not busy: so many members have paused their grants that no majority is left. */
function toPausedField({ paused }: Tally): { readonly paused?: Pause } {
  return paused === undefined ? {} : { paused };
}

function toHeldAnswer(quorumClaim: QuorumClaim, startedAt: number): Answer {
  return createHeldAnswer(quorumClaim, toRemainingMs(quorumClaim.votesEndAt(), startedAt, quorumClaim.ttlMs));
}

/**
 * A push extends no deadline. It carries the remaining lease; the client treats it as a hint if its own deadline is
 * later.
 */
function toPushedAnswer(quorumClaim: QuorumClaim, now: number): Answer {
  return createHeldAnswer(quorumClaim, quorumClaim.votesEndAt() - now);
}

function createHeldAnswer({ tokens, isRecalled }: QuorumClaim, remainingMs: number): Answer {
  return { state: "held", ...(tokens as TokenRange), remainingMs, ...(isRecalled && { recalled: true }) };
}

function createMissingAnswerError({ index }: Member): Error {
  return new Error(`quorum: member ${index} omitted an answer`);
}
