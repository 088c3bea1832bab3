/**
 * Agrees on a grant's token with a majority of members. token-claims.ts says how, driver.ts why tokens rise. The token
 * can be found as long as the claim is renewed: a token claim that a member has lost is made again there.
 */

import { isFatalError } from "../../errors.ts";
import type { Answer, Claim, ClaimView } from "../../spi/driver.ts";
import { publicTag } from "../../util/ids.ts";
import { listAll } from "./list.ts";
import type { Member, MemberCall } from "./member.ts";
import { waitForMembers } from "./member.ts";
import type { MemberClaim, QuorumClaim } from "./quorum-claim.ts";
import type { TokenRun as Agreed } from "./token-claims.ts";
import {
  CLOCK_LEAD,
  createReplacementTokenClaim,
  createTokenClaim,
  findAgreedRun,
  findRunsByTag,
  parseClaimTag,
} from "./token-claims.ts";

/** How often a higher floor is tried when the members' tokens differ. */
const MAX_FLOOR_RAISES = 3;

/** Microseconds; members refuse floors that are a day ahead of their clocks. */
const HALF_DAY = 43_200_000_000n;

type AgreedRun = Agreed | null;

/**
 * Says whether a majority has agreed; if so, the quorum claim has its token.
 * @throws (rejects) FatalDriverError if so many members refuse the floor that no majority is left
 */
export async function agreeOnToken(
  members: readonly Member[],
  quorumClaim: QuorumClaim,
  time: () => number,
  deadline: number,
): Promise<boolean> {
  const getRemainingMs = (): number => deadline - time();
  if (!quorumClaim.isOurs) {
    const existing = await findExistingToken(members, quorumClaim, getRemainingMs);
    if (existing !== "none") return recordToken(quorumClaim, existing);
  }
  const clocks = members.flatMap(({ index, wallOffsetMs }) => {
    const clock =
      wallOffsetMs === null ? quorumClaim.clockOfMember(index) : BigInt(Math.ceil((time() + wallOffsetMs) * 1_000));
    return clock === 0n ? [] : [clock];
  });
  const highest = findHighest([quorumClaim.floor - CLOCK_LEAD, ...clocks], findMaxClock(clocks, quorumClaim.majority));
  return requestToken(
    members,
    quorumClaim,
    highest + CLOCK_LEAD,
    getRemainingMs,
    quorumClaim.isOurs ? MAX_FLOOR_RAISES : 0,
  );
}

/** A clock above this is far ahead of a majority: the other members would refuse a floor derived from it. */
function findMaxClock(clocks: readonly bigint[], majority: number): bigint {
  const descending = clocks.toSorted((left, right) => (left < right ? 1 : -1));
  return (descending[Math.min(majority, descending.length) - 1] ?? 0n) + HALF_DAY;
}

function findHighest([first, ...others]: readonly [bigint, ...bigint[]], max: bigint): bigint {
  return others.reduce((highest, value) => (value > highest && value <= max ? value : highest), first);
}

function recordToken(quorumClaim: QuorumClaim, run: AgreedRun): boolean {
  if (run === null || run.token < quorumClaim.floor) return false;
  quorumClaim.token = run.token;
  quorumClaim.tokens = run.tokenCount;
  quorumClaim.hasTokenClaim = true;
  return true;
}

/**
 * Finds the token of another client's grant. It makes no token claim, which could be taken for that client's. "none": a
 * majority has no token claim of it, so it never had a token.
 */
async function findExistingToken(
  members: readonly Member[],
  quorumClaim: QuorumClaim,
  getRemainingMs: () => number,
): Promise<AgreedRun | "none"> {
  const tokenClaim = createTokenClaim(quorumClaim.claim, 0n);
  const answers: Answer[] = [];
  const calls = members.map((member): MemberCall => {
    const onAnswers = ([answer]: readonly (Answer | undefined)[]): void => {
      if (answer !== undefined) answers.push(answer);
    };
    return { member, settled: member.call((driver) => driver.renew([tokenClaim])).then(onAnswers, () => undefined) };
  });
  // if a majority's answers differ, more answers do not help
  await waitForMembers(calls, () => answers.length >= quorumClaim.majority, getRemainingMs());
  return findAgreedRun(answers, quorumClaim.majority) ?? findTokenInLists(members, quorumClaim, getRemainingMs);
}

/** The same if token claims were replaced: only lists show the original tokens. */
async function findTokenInLists(
  members: readonly Member[],
  quorumClaim: QuorumClaim,
  getRemainingMs: () => number,
): Promise<AgreedRun | "none"> {
  const [{ key }] = createTokenClaim(quorumClaim.claim, 0n).locks;
  const tag = publicTag(quorumClaim.claim.id);
  const lists: ClaimView[][] = [];
  const findRun = (): AgreedRun => findRunsByTag(lists.flat(), quorumClaim.majority).get(tag) ?? null;
  const calls = members.map((member): MemberCall => {
    const onViews = (views: readonly ClaimView[]): void => {
      lists.push(views.filter((view) => parseClaimTag(view) === tag));
    };
    return { member, settled: member.call((driver) => listAll(driver, { key })).then(onViews, () => undefined) };
  });
  await waitForMembers(calls, () => findRun() !== null, getRemainingMs());
  const emptyCount = lists.filter((views) => views.length === 0).length;
  return emptyCount >= quorumClaim.majority ? "none" : findRun();
}

async function requestToken(
  members: readonly Member[],
  quorumClaim: QuorumClaim,
  floor: bigint,
  getRemainingMs: () => number,
  raisesLeft: number,
): Promise<boolean> {
  const tokenClaim = createTokenClaim(quorumClaim.claim, floor);
  const answers = new Map<Member, Answer>();
  const errors: unknown[] = [];
  quorumClaim.hasTokenClaim = true;
  const findRun = (): AgreedRun => findAgreedRun([...answers.values()], quorumClaim.majority);
  const calls = members.map((member) => {
    const settled = sendTokenClaim(member, quorumClaim, tokenClaim).then(
      (answer) => void answers.set(member, answer),
      (error: unknown) => void errors.push(error),
    );
    return { member, settled };
  });
  await waitForMembers(calls, () => findRun() !== null, getRemainingMs());
  if (recordToken(quorumClaim, findRun())) return true;
  const fatal = errors.filter(isFatalError);
  if (fatal.length > members.length - quorumClaim.majority) throw fatal[0];
  if (raisesLeft === 0 || answers.size < quorumClaim.majority || quorumClaim.isDone) return false;
  // a member's counter is ahead of the floor: start again at all members with a higher floor
  await releaseTokenClaims([...answers.keys()], tokenClaim, getRemainingMs());
  return quorumClaim.isDone
    ? false
    : requestToken(
        members,
        quorumClaim,
        raiseFloor([...answers.values()], floor) + CLOCK_LEAD,
        getRemainingMs,
        raisesLeft - 1,
      );
}

function raiseFloor(answers: readonly Answer[], floor: bigint): bigint {
  const runEnds = answers.map((answer) => (answer.state === "held" ? answer.token + BigInt(answer.tokenCount) : 0n));
  return findHighest([floor, ...runEnds], floor + HALF_DAY);
}

async function releaseTokenClaims(members: readonly Member[], tokenClaim: Claim, timeoutMs: number): Promise<void> {
  const calls = members.map((member) => ({
    member,
    // a member whose release failed still has the token claim; its old token then differs from the agreed one
    settled: member
      .call((driver) => driver.release([tokenClaim]))
      .then(
        () => undefined,
        () => undefined,
      ),
  }));
  await waitForMembers(calls, () => false, timeoutMs);
}

/**
 * Renews the token claims of granted claims at this member, without waiting. A token claim that is gone, or has another
 * token, is replaced.
 */
export function renewTokenClaims(member: Member, quorumClaims: readonly QuorumClaim[]): void {
  const grantedClaims = quorumClaims.filter(({ token }) => token !== null);
  if (grantedClaims.length === 0) return;
  const onAnswers = (answers: readonly (Answer | undefined)[]): void => {
    for (const [index, quorumClaim] of grantedClaims.entries()) {
      const { claim, token, isDone } = quorumClaim;
      const memberClaim = quorumClaim.memberClaims[member.index] as MemberClaim;
      const answer = answers[index];
      const isDifferent = answer?.state === "held" && !memberClaim.isTokenClaimReplaced && answer.token !== token;
      if ((answer?.state !== "none" && !isDifferent) || isDone || token === null) continue;
      memberClaim.isTokenClaimReplaced = true;
      sendTokenClaim(member, quorumClaim, createReplacementTokenClaim(claim, token)).catch(() => undefined); // the next renewal retries
    }
  };
  const tokenClaims = grantedClaims.map((quorumClaim) => getTokenClaim(quorumClaim, member.index));
  member.call((driver) => driver.renew(tokenClaims)).then(onAnswers, () => undefined);
}

/** The token claim that a member should have. */
export function getTokenClaim({ claim, memberClaims }: QuorumClaim, index: number): Claim {
  return memberClaims[index]?.isTokenClaimReplaced === true
    ? createReplacementTokenClaim(claim, 0n)
    : createTokenClaim(claim, 0n);
}

/** Makes a token claim at one member. After a failure it stays counted as in flight, since it may still arrive. */
async function sendTokenClaim(member: Member, quorumClaim: QuorumClaim, tokenClaim: Claim): Promise<Answer> {
  const memberClaim = quorumClaim.memberClaims[member.index] as MemberClaim;
  const isSent = member.isOpen;
  if (isSent) memberClaim.tokenClaimsInFlight++;
  const answer = await member.call((driver) => driver.claim(tokenClaim));
  if (isSent) memberClaim.tokenClaimsInFlight--;
  return answer;
}
