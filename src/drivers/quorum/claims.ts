/** Coordinates one claim across the members. driver.ts has the states and the safety argument. */

import { isFatalError } from "../../errors.ts";
import type { Answer, ClaimId, Driver, Pause } from "../../spi/driver.ts";
import { backoffMs } from "../../util/backoff.ts";
import type { Clock } from "../../util/clock.ts";
import type { Member, MemberCall } from "./member.ts";
import { delay, waitForMembers } from "./member.ts";
import type { QuorumClaim } from "./quorum-claim.ts";
import { toMajority, toRemainingMs } from "./quorum-claim.ts";
import type { QuorumClaims } from "./quorum-claims.ts";
import { releaseClaims } from "./release.ts";
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

export interface ClaimCoordinatorOptions {
  readonly members: readonly Member[];
  readonly claims: QuorumClaims;
  readonly clock: Clock;
  readonly time: () => number;
  readonly random: () => number;
  /** The time limit of a call for this claim. */
  readonly getTimeoutMs: (quorumClaim: QuorumClaim) => number;
  readonly notify: (id: ClaimId, answer?: Answer) => void;
}

export class ClaimCoordinator {
  readonly #members: readonly Member[];
  readonly #majority: number;
  readonly #claims: QuorumClaims;
  readonly #time: () => number;
  readonly #random: () => number;
  readonly #options: ClaimCoordinatorOptions;

  constructor(options: ClaimCoordinatorOptions) {
    this.#members = options.members;
    this.#majority = toMajority(options.members.length);
    this.#claims = options.claims;
    this.#time = options.time;
    this.#random = options.random;
    this.#options = options;
  }

  async claim(quorumClaim: QuorumClaim, deadline: number, attempt: number): Promise<Answer> {
    const { claim } = quorumClaim;
    const startedAt = this.#time();
    const tally = new Tally(this.#members.length);
    const calls = this.#members.map((member) => this.#askMember(quorumClaim, member, tally));
    await waitForMembers(calls, () => tally.isDecided, deadline - startedAt);
    const isSplit = tally.paused === undefined && quorumClaim.isSplit(this.#time());
    if (claim.wait || quorumClaim.countHeld(this.#time()) >= this.#majority || quorumClaim.hasTokenClaim) {
      return this.resolveStatus(quorumClaim, tally, startedAt, deadline);
    }
    const answer = await this.#computeStatus(quorumClaim, tally, startedAt, deadline);
    if (answer.state !== "none" || quorumClaim.isDone) return answer;
    // "none" must leave no trace: release the votes; members remember the calls that may still arrive
    await this.#releaseGrants(quorumClaim, deadline);
    const delayMs = backoffMs(attempt, this.#random(), MAX_BACKOFF_MS);
    if (isSplit && attempt < MAX_TRIES && this.#time() + delayMs < deadline && quorumClaim.isSettled) {
      await delay(this.#options.clock, delayMs);
      return quorumClaim.isDone ? NONE : this.claim(quorumClaim, deadline, attempt + 1);
    }
    this.#abandon(quorumClaim);
    return { ...NONE, ...toPausedField(tally) };
  }

  /**
   * Ends a claim that is not held: a late grant is released when it arrives; an unanswered release is repeated by its
   * member.
   */
  #abandon(quorumClaim: QuorumClaim): void {
    this.#claims.remove(quorumClaim.claim);
    quorumClaim.isAbandoned = true;
    for (const member of this.#members) {
      const memberClaim = quorumClaim.memberClaims[member.index];
      if (memberClaim?.isOutcomeUnknown === true || memberClaim?.isReleasePending === true)
        member.addPendingRelease(quorumClaim.claim, quorumClaim.ttlMs);
    }
  }

  /** Asks one member about the claim: sends `claim` if no entry is known there, else `renew`. */
  #askMember(quorumClaim: QuorumClaim, member: Member, tally: Tally | null): MemberCall {
    const { claim } = quorumClaim;
    const memberClaim = quorumClaim.memberClaims[member.index] as QuorumClaim["memberClaims"][number];
    if (memberClaim.isReleasePending) {
      tally?.addError(new Error(`quorum: member ${member.index} has not answered a release`));
      return { member, settled: Promise.resolve() };
    }
    const needsClaim = memberClaim.state === "none" || memberClaim.state === "unknown";
    const call = ++memberClaim.callCount;
    const sentAt = this.#time();
    const isSent = member.isOpen && needsClaim;
    if (isSent) memberClaim.claimsInFlight++;
    const work = async (driver: Driver): Promise<Answer> => {
      if (needsClaim) return driver.claim(claim);
      const [answer] = await driver.renew([claim]);
      if (answer === undefined) throw createMissingAnswerError(member);
      return answer;
    };
    const settled = member.call(work).then(
      (answer) => {
        if (isSent) memberClaim.claimsInFlight--;
        member.observeClock(answer, sentAt);
        quorumClaim.onAnswer(member.index, call, sentAt, answer, this.#time());
        tally?.add(answer);
        if (quorumClaim.isAbandoned && answer.state !== "none") this.#releaseLateGrant(quorumClaim, member);
        this.onChange(quorumClaim);
      },
      (error: unknown) => {
        if (isSent) {
          memberClaim.claimsInFlight--;
          memberClaim.isOutcomeUnknown = true;
        }
        if (quorumClaim.isAbandoned) member.addPendingRelease(claim, quorumClaim.ttlMs);
        tally?.addError(error);
      },
    );
    return { member, settled };
  }

  /** Releases a grant that arrived after the claim was abandoned. */
  #releaseLateGrant({ claim, ttlMs }: QuorumClaim, member: Member): void {
    member.call((driver) => driver.release([claim])).catch(() => member.addPendingRelease(claim, ttlMs));
  }

  /**
   * Sends one call for all claims that may have an entry at this member, and one for their token claims, without
   * waiting for it.
   */
  renewAt(member: Member, quorumClaims: readonly QuorumClaim[], tallies: readonly Tally[]): MemberCall[] {
    const sentAt = this.#time();
    const items = quorumClaims.flatMap((quorumClaim, index) => {
      const memberClaim = quorumClaim.memberClaims[member.index] as QuorumClaim["memberClaims"][number];
      if (memberClaim.isReleasePending || memberClaim.state === "none") {
        tallies[index]?.addNotAsked();
        return [];
      }
      return [{ quorumClaim, tally: tallies[index] as Tally, call: ++memberClaim.callCount }];
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
  async resolveStatus(quorumClaim: QuorumClaim, tally: Tally, startedAt: number, deadline: number): Promise<Answer> {
    const answer = await this.#computeStatus(quorumClaim, tally, startedAt, deadline).catch(async (error: unknown) => {
      // refused permanently: leave no trace
      if (isFatalError(error) && quorumClaim.isOurs && !quorumClaim.isDone)
        await this.#releaseEverywhere(quorumClaim, deadline);
      throw error;
    });
    // "none" always means no trace
    if (answer.state === "none" && !quorumClaim.isDone) await this.#releaseEverywhere(quorumClaim, deadline);
    return answer;
  }

  async #computeStatus(quorumClaim: QuorumClaim, tally: Tally, startedAt: number, deadline: number): Promise<Answer> {
    const now = this.#time();
    if (quorumClaim.isDone) return NONE;
    if (quorumClaim.countHeld(now) >= this.#majority) {
      quorumClaim.backOffAt = null;
      const hasToken = await this.#ensureToken(quorumClaim, deadline);
      if (quorumClaim.isDone) return NONE;
      if (hasToken && quorumClaim.countHeld(this.#time()) >= this.#majority)
        return toHeldAnswer(quorumClaim, startedAt);
      throw new Error("quorum: a majority has granted the claim, but has not agreed on its token yet");
    }
    const entryCount = quorumClaim.countEntries(now);
    if (quorumClaim.hasTokenClaim || entryCount + quorumClaim.countUnknown() < this.#majority) return tally.noneAnswer;
    if (quorumClaim.claim.wait ? entryCount < this.#majority : !tally.hasMajorityAnswered) throw tally.failure;
    if (!quorumClaim.claim.wait) return NONE;
    if (!quorumClaim.isSplit(now)) quorumClaim.backOffAt = null;
    else {
      quorumClaim.backOffAt ??=
        now + backoffMs(FIRST_BACKOFF_FAILURES + quorumClaim.backOffCount, this.#random(), MAX_BACKOFF_MS);
      if (now >= quorumClaim.backOffAt) {
        await this.#backOff(quorumClaim, deadline);
        // the members may have admitted others meanwhile, or this claim
        if (quorumClaim.countHeld(this.#time()) >= this.#majority)
          return this.#computeStatus(quorumClaim, tally, startedAt, deadline);
      }
    }
    const recheckMs =
      quorumClaim.backOffAt === null
        ? quorumClaim.recheckMs()
        : Math.min(quorumClaim.recheckMs(), quorumClaim.backOffAt - now);
    const ttlMs = toRemainingMs(quorumClaim.enqueuedUntil(), startedAt, quorumClaim.ttlMs);
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
    await this.#releaseGrants(quorumClaim, deadline);
    if (quorumClaim.isDone) return; // released meanwhile
    const members = this.#members.filter(({ index }) => quorumClaim.memberClaims[index]?.state === "none");
    const tally = new Tally(this.#members.length);
    await waitForMembers(
      members.map((member) => this.#askMember(quorumClaim, member, tally)),
      () => false,
      deadline - this.#time(),
    );
  }

  /**
   * Releases the votes at members without a `claim` call in flight: a member must answer the release before it gets the
   * claim again.
   */
  async #releaseGrants(quorumClaim: QuorumClaim, deadline: number): Promise<void> {
    const { claim } = quorumClaim;
    const releasing = this.#members.filter(({ index }) => {
      const memberClaim = quorumClaim.memberClaims[index];
      return memberClaim?.state === "held" && memberClaim.claimsInFlight === 0;
    });
    const calls = releasing.map((member) => {
      quorumClaim.startRelease(member.index);
      const onReleased = (): void => quorumClaim.confirmRelease(member.index);
      const onFailed = (): void => member.addPendingRelease(claim, quorumClaim.ttlMs, onReleased);
      return { member, settled: member.call((driver) => driver.release([claim])).then(onReleased, onFailed) };
    });
    await waitForMembers(calls, () => false, deadline - this.#time());
  }

  async #releaseEverywhere(quorumClaim: QuorumClaim, deadline: number): Promise<void> {
    const quorumClaimToRelease = this.#claims.remove(quorumClaim.claim);
    const remainingMs = Math.max(deadline - this.#time(), 1);
    // members repeat the releases that they have not answered
    await releaseClaims(this.#members, [quorumClaimToRelease], undefined, remainingMs).catch(() => undefined);
  }

  /** Claims an entry again at members that have lost it or never had it, without waiting. */
  restoreEntries(quorumClaim: QuorumClaim): void {
    // a claim of another client may have been released, unless a majority was found to hold it
    if (quorumClaim.isDone || (!quorumClaim.isOurs && quorumClaim.token === null)) return;
    for (const member of this.#members) {
      const memberClaim = quorumClaim.memberClaims[member.index];
      if (memberClaim?.isReleasePending === true) member.flushReleases();
      else if (memberClaim?.state === "none") this.#askMember(quorumClaim, member, null);
    }
  }

  #ensureToken(quorumClaim: QuorumClaim, deadline: number): Promise<boolean> {
    if (quorumClaim.token !== null) return Promise.resolve(true);
    quorumClaim.tokenRequest ??= agreeOnToken(this.#members, quorumClaim, this.#time, deadline).finally(() => {
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
      quorumClaim.token !== null ||
      quorumClaim.tokenRequest !== null
    )
      return;
    if (quorumClaim.countHeld(this.#time()) < this.#majority) return;
    const { id } = quorumClaim.claim;
    this.#ensureToken(quorumClaim, this.#time() + this.#options.getTimeoutMs(quorumClaim)).then(
      (hasToken) => {
        const now = this.#time();
        if (quorumClaim.isDone) return;
        if (hasToken && quorumClaim.countHeld(now) >= this.#majority)
          this.#options.notify(id, toPushedAnswer(quorumClaim, now));
        else this.#options.notify(id);
      },
      () => this.#options.notify(id), // the recheck reports the error
    );
  }
}

/** Unknown is not busy: so many members have paused their grants that no majority is left. */
function toPausedField({ paused }: Tally): { readonly paused?: Pause } {
  return paused === undefined ? {} : { paused };
}

function toHeldAnswer(quorumClaim: QuorumClaim, startedAt: number): Answer {
  const remainingMs = toRemainingMs(quorumClaim.heldUntil(), startedAt, quorumClaim.ttlMs);
  return { state: "held", token: quorumClaim.token ?? 0n, tokenCount: quorumClaim.tokens, remainingMs };
}

/**
 * A push extends no deadline. It carries the remaining lease; the client treats it as a hint if its own deadline is
 * later.
 */
function toPushedAnswer(quorumClaim: QuorumClaim, now: number): Answer {
  return {
    state: "held",
    token: quorumClaim.token ?? 0n,
    tokenCount: quorumClaim.tokens,
    remainingMs: quorumClaim.heldUntil() - now,
  };
}

function createMissingAnswerError({ index }: Member): Error {
  return new Error(`quorum: member ${index} omitted an answer`);
}
