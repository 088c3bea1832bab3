/** How one claim is voted for at the members; what it all means stands in driver.ts. */

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

/** How often a claim that does not wait is tried when its votes are split. */
const MAX_TRIES = 3;

/** A split is left alone for a random time; its bound doubles from FIRST_BACKOFF_FAILURES failures of util/backoff.ts on. */
const FIRST_BACKOFF_FAILURES = 3;
const MAX_BACKOFF_MS = 2_000;

export interface ClaimCoordinatorOptions {
  readonly members: readonly Member[];
  readonly claims: QuorumClaims;
  readonly clock: Clock;
  readonly time: () => number;
  readonly random: () => number;
  /** How long a call for this claim may take. */
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
    const isTie = tally.paused === undefined && quorumClaim.isSplit(this.#time());
    if (claim.wait || quorumClaim.countHeld(this.#time()) >= this.#majority || quorumClaim.hasTokenClaim) {
      return this.resolveStatus(quorumClaim, tally, startedAt, deadline);
    }
    const answer = await this.#computeStatus(quorumClaim, tally, startedAt, deadline);
    if (answer.state !== "none" || quorumClaim.isDone) return answer;
    // no trace: what was granted is given back, and what may still be on its way is remembered there
    await this.#releaseGrants(quorumClaim, deadline);
    const delayMs = backoffMs(attempt, this.#random(), MAX_BACKOFF_MS);
    if (isTie && attempt < MAX_TRIES && this.#time() + delayMs < deadline && quorumClaim.isSettled) {
      await delay(this.#options.clock, delayMs);
      return quorumClaim.isDone ? NONE : this.claim(quorumClaim, deadline, attempt + 1);
    }
    this.#abandon(quorumClaim);
    return { ...NONE, ...toPausedField(tally) };
  }

  /** Nothing is held: what is still on its way is given back when it is answered, or kept for its member. */
  #abandon(quorumClaim: QuorumClaim): void {
    this.#claims.remove(quorumClaim.claim);
    quorumClaim.isAbandoned = true;
    for (const member of this.#members) {
      const memberClaim = quorumClaim.memberClaims[member.index];
      if (memberClaim?.isOutcomeUnknown === true || memberClaim?.isReleasePending === true)
        member.addPendingRelease(quorumClaim.claim, quorumClaim.ttlMs);
    }
  }

  /** Asks one member for a place: the claim is sent where it has none, for all we know. */
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

  /** It was granted after all, when nobody waited for it any more. */
  #releaseLateGrant({ claim, ttlMs }: QuorumClaim, member: Member): void {
    member.call((driver) => driver.release([claim])).catch(() => member.addPendingRelease(claim, ttlMs));
  }

  /** One call for all that may have a place at this member, and one for their tickets, which nobody waits for. */
  renewAt(member: Member, quorumClaims: readonly QuorumClaim[], tallies: readonly Tally[]): MemberCall[] {
    const sentAt = this.#time();
    const items = quorumClaims.flatMap((quorumClaim, index) => {
      const memberClaim = quorumClaim.memberClaims[member.index] as QuorumClaim["memberClaims"][number];
      if (memberClaim.isReleasePending || memberClaim.state === "none") {
        tallies[index]?.addNotAsked();
        return [];
      }
      return [{ quorumClaim, round: tallies[index] as Tally, call: ++memberClaim.callCount }];
    });
    if (items.length === 0) return [];
    const settled = member
      .call((driver) => driver.renew(items.map(({ quorumClaim }) => quorumClaim.claim)))
      .then(
        (answers) => {
          for (const [index, { quorumClaim, round: tally, call }] of items.entries()) {
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
          for (const { round: tally } of items) tally.addError(error);
        },
      );
    renewTokenClaims(
      member,
      items.map(({ quorumClaim }) => quorumClaim),
    );
    return [{ member, settled }];
  }

  /** Where the claim stands by all that has been heard. @throws (rejects) where that is unknown */
  async resolveStatus(quorumClaim: QuorumClaim, tally: Tally, startedAt: number, deadline: number): Promise<Answer> {
    const answer = await this.#computeStatus(quorumClaim, tally, startedAt, deadline).catch(async (error: unknown) => {
      // refused for good: nothing of it may stay
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
      throw new Error("quorum: a majority votes for it, but has not agreed on its token yet");
    }
    const placedCount = quorumClaim.countPlaced(now);
    if (quorumClaim.hasTokenClaim || placedCount + quorumClaim.countUnknown() < this.#majority) return tally.noneAnswer;
    if (quorumClaim.claim.wait ? placedCount < this.#majority : !tally.hasMajorityAnswered) throw tally.failure;
    if (!quorumClaim.claim.wait) return NONE;
    if (!quorumClaim.isSplit(now)) quorumClaim.backOffAt = null;
    else {
      quorumClaim.backOffAt ??=
        now + backoffMs(FIRST_BACKOFF_FAILURES + quorumClaim.backOffCount, this.#random(), MAX_BACKOFF_MS);
      if (now >= quorumClaim.backOffAt) {
        await this.#backOff(quorumClaim, deadline);
        // others may have moved up meanwhile, or we
        if (quorumClaim.countHeld(this.#time()) >= this.#majority)
          return this.#computeStatus(quorumClaim, tally, startedAt, deadline);
      }
    }
    const recheckMs =
      quorumClaim.backOffAt === null
        ? quorumClaim.recheckMs()
        : Math.min(quorumClaim.recheckMs(), quorumClaim.backOffAt - now);
    const ttlMs = toRemainingMs(quorumClaim.placedUntil(), startedAt, quorumClaim.ttlMs);
    return { state: "waiting", ttlMs: Math.max(ttlMs, 1), recheckMs: Math.max(recheckMs, 1), ...toPausedField(tally) };
  }

  /** Gives the votes of a split back and lines up again behind the others. */
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

  /** Its votes, where no `claim` of it is under way: a release must be answered before it may come there again. */
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
    const removed = this.#claims.remove(quorumClaim.claim);
    const remainingMs = Math.max(deadline - this.#time(), 1);
    // what a member does not answer is kept for it
    await releaseClaims(this.#members, [removed], undefined, remainingMs).catch(() => undefined);
  }

  /** A place that a member has lost, or never had, is asked for again; nobody waits for it. */
  restoreEntries(quorumClaim: QuorumClaim): void {
    // one that another client made may be released, unless a majority was found to hold it
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

  /** Something was heard while no verb looks: a majority of votes that has come together is made a grant, and pushed. */
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
      () => this.#options.notify(id), // asked again, it is told why
    );
  }
}

/** Unknown is not busy: too many members grant nothing new to anyone. */
function toPausedField({ paused }: Tally): { readonly paused?: Pause } {
  return paused === undefined ? {} : { paused };
}

function toHeldAnswer(quorumClaim: QuorumClaim, startedAt: number): Answer {
  const ttlMs = toRemainingMs(quorumClaim.heldUntil(), startedAt, quorumClaim.ttlMs);
  return { state: "held", token: quorumClaim.token ?? 0n, tokens: quorumClaim.tokens, ttlMs };
}

/** A push moves no deadline: it tells how much stands, and the core takes it for a hint if it believes in more. */
function toPushedAnswer(quorumClaim: QuorumClaim, now: number): Answer {
  return {
    state: "held",
    token: quorumClaim.token ?? 0n,
    tokens: quorumClaim.tokens,
    ttlMs: quorumClaim.heldUntil() - now,
  };
}

function createMissingAnswerError({ index }: Member): Error {
  return new Error(`quorum: member ${index} left an answer out`);
}
