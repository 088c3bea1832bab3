/** Releases and detaches claims at all members, and counts for how many of these they still had each claim. */

import type { Claim, Driver, Release } from "../../spi/driver.ts";
import { AnswerCount } from "./answer-count.ts";
import type { Member } from "./member.ts";
import { waitForMembers } from "./member.ts";
import type { QuorumClaim } from "./quorum-claim.ts";
import { toMajority } from "./quorum-claim.ts";
import { createReplacementTokenClaim, createTokenClaim, getTokenClaim } from "./tokens.ts";

/** A Release with the state of its claim. */
interface QuorumRelease extends Pick<Release, "hasUnansweredClaim"> {
  readonly quorumClaim: QuorumClaim;
}

/** A call to a member that answers for each of several claims whether it had the claim. */
interface FlagCall {
  readonly member: Member;
  readonly flags: Promise<readonly boolean[]>;
  readonly onFailed?: () => void;
}

/** What the members have answered: how many of them, and how many for each claim that they had it. */
class FlagCounts {
  readonly #members: number;
  readonly #majority: number;
  readonly #trueCounts: number[];
  readonly answers: AnswerCount;

  constructor(members: number, claims: number) {
    this.#members = members;
    this.#majority = toMajority(members);
    this.#trueCounts = Array.from({ length: claims }, () => 0);
    this.answers = new AnswerCount(members);
  }

  add(flags: readonly boolean[]): void {
    for (const index of this.#trueCounts.keys())
      if (flags[index] === true) this.#trueCounts[index] = (this.#trueCounts[index] as number) + 1;
    this.answers.addAnswered();
  }

  /** Has a majority said that they had this claim? */
  hasMajority(index: number): boolean {
    return (this.#trueCounts[index] as number) >= this.#majority;
  }

  /** May a majority have had this claim, if all members had it that have not answered? And one at least has said so. */
  mayHaveMajority(index: number): boolean {
    const trueCount = this.#trueCounts[index] as number;
    return trueCount > 0 && this.answers.answeredCount - trueCount <= this.#members - this.#majority;
  }

  /** Can no further answer change for any claim whether a majority had it? */
  get isDecided(): boolean {
    const { answers } = this;
    if (answers.hasFailed) return true;
    const isDecidedFor = (trueCount: number): boolean =>
      trueCount >= this.#majority || answers.answeredCount - trueCount > this.#members - this.#majority;
    return answers.hasMajorityAnswered && this.#trueCounts.every(isDecidedFor);
  }
}

/** @throws (rejects) Error if fewer than a majority have answered */
async function countFlags(
  calls: readonly FlagCall[],
  counts: FlagCounts,
  isDecided: () => boolean,
  timeoutMs: number,
): Promise<void> {
  const memberCalls = calls.map(({ member, flags, onFailed }) => ({
    member,
    settled: flags.then(
      (answer) => counts.add(answer),
      (error: unknown) => {
        counts.answers.addError(error);
        onFailed?.();
      },
    ),
  }));
  await waitForMembers(memberCalls, isDecided, timeoutMs);
  if (!counts.answers.hasMajorityAnswered) throw counts.answers.failure;
}

/**
 * Releases claims at every member, their votes and token claims in one call. Says of each claim whether a majority
 * still had it. A member that has not answered gets the release again when it answers again.
 * @throws (rejects) Error if fewer than a majority have answered
 */
export async function releaseClaims(
  members: readonly Member[],
  quorumReleases: readonly QuorumRelease[],
  timeoutMs: number,
): Promise<readonly boolean[]> {
  const counts = new FlagCounts(members.length, quorumReleases.length);
  const calls = members.map((member): FlagCall => {
    const releases = collectReleases(quorumReleases, member.index);
    const onFailed = (): void => {
      for (const { claim } of releases) member.addPendingRelease(claim, claim.ttlMs === "session" ? 0 : claim.ttlMs);
    };
    return { member, flags: member.call((driver) => driver.release(releases)), onFailed };
  });
  await countFlags(calls, counts, () => counts.isDecided, timeoutMs);
  return quorumReleases.map((_, index) => counts.mayHaveMajority(index));
}

/**
 * Detaches claims from this process's sessions at members that have sessions: on a Unix socket the claims would end
 * with this process. Says of each held claim whether a majority keeps its vote without this process.
 * @throws (rejects) Error if fewer than a majority have answered, or have its token claim: the claim would come back
 * with another
 *   token
 */
export async function detachClaims(
  members: readonly Member[],
  quorumClaims: readonly QuorumClaim[],
  timeoutMs: number,
  remainingMs: number | undefined,
): Promise<readonly boolean[]> {
  const counts = new FlagCounts(members.length, 2 * quorumClaims.length);
  const calls = members.map((member): FlagCall => {
    const claims = [
      ...quorumClaims.map(({ claim }) => claim),
      ...quorumClaims.map((quorumClaim) => getTokenClaim(quorumClaim, member.index)),
    ];
    return { member, flags: member.call((driver) => detachAt(driver, claims, remainingMs)) };
  });
  await countFlags(calls, counts, () => false, timeoutMs);
  const isKept = (index: number): boolean => counts.hasMajority(index);
  const lacksTokenClaim = quorumClaims.some((_, index) => isKept(index) && !isKept(index + quorumClaims.length));
  if (lacksTokenClaim)
    throw new Error(
      "quorum: cannot detach: fewer than a majority of members have the token claim; the lock stays attached",
    );
  return quorumClaims.map((_, index) => isKept(index));
}

/** A driver without detach() has no sessions: a claim that is held stays. */
function detachAt(
  driver: Driver,
  claims: readonly Claim[],
  remainingMs: number | undefined,
): Promise<readonly boolean[]> {
  return (
    driver.detach?.(claims, remainingMs) ??
    driver.renew(claims).then((answers) => answers.map((answer) => answer?.state === "held"))
  );
}

/** What to release at one member: first the votes, in the order of the quorum claims, then the token claims. */
function collectReleases(quorumReleases: readonly QuorumRelease[], index: number): readonly Release[] {
  const votes: Release[] = [];
  const tokenClaims: Release[] = [];
  for (const { quorumClaim, hasUnansweredClaim } of quorumReleases) {
    const { claim, hasTokenClaim, isOurs } = quorumClaim;
    // a claim of another client, or one released before, has no known calls: any may be in flight
    const mayClaimArrive = !isOurs || hasUnansweredClaim || quorumClaim.memberClaim(index).mayClaimArrive;
    votes.push({ claim, hasUnansweredClaim: mayClaimArrive });
    if (!hasTokenClaim && isOurs) continue;
    const { mayClaimArrive: mayTokenClaimArrive, isReplaced } = quorumClaim.tokenClaim(index);
    const replacements = isOurs && !isReplaced ? [] : [createReplacementTokenClaim(claim, 0n)];
    for (const tokenClaim of [createTokenClaim(claim, 0n), ...replacements])
      tokenClaims.push({ claim: tokenClaim, hasUnansweredClaim: !isOurs || mayTokenClaimArrive });
  }
  return [...votes, ...tokenClaims];
}
