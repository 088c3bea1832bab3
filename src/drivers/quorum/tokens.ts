/**
 * Agrees on a grant's token with a majority of members, by token claims: a second key beside each locked key, on every
 * member, from which the grant's token comes (decision 0015). A claim with a majority of votes makes its token claim
 * everywhere with one floor, ahead of every clock seen, so that all members answer with that same token; it is the
 * grant's token when a majority has given it. driver.ts argues why tokens rise. The token can be found as long as the
 * claim is renewed: a token claim that a member has lost is made again there.
 */

import { createHash } from "node:crypto";
import { isFatalError } from "../../errors.ts";
import type { Answer, Claim, ClaimView, TokenRange } from "../../spi/driver.ts";
import { ALL_PERMITS } from "../../spi/driver.ts";
import { publicTag } from "../../util/ids.ts";
import { MAX_KEY_BYTES } from "../../util/keys.ts";
import type { Member, MemberCall } from "./member.ts";
import { listAll, waitForMembers } from "./member.ts";
import type { QuorumClaim } from "./quorum-claim.ts";

const TOKEN_KEY_SUFFIX = "#holdfast-token";
export const HASHED_TOKEN_KEY_PREFIX: string = `${TOKEN_KEY_SUFFIX}:`;

/**
 * The floor of a token claim is this far (microseconds) ahead of the highest clock, so that no clock has passed it on
 * arrival.
 */
const CLOCK_LEAD = 1_000_000n;

/** How often a higher floor is tried when the members' tokens differ. */
const MAX_FLOOR_RAISES = 3;

/** Microseconds; members refuse floors that are a day ahead of their clocks. */
const HALF_DAY = 43_200_000_000n;

/** The members, the claim whose token they are to agree on, and the time that is left for that. */
interface Agreement {
  readonly members: readonly Member[];
  readonly quorumClaim: QuorumClaim;
  readonly time: () => number;
  readonly deadline: number;
}

/**
 * Says whether a majority has agreed; if so, the quorum claim has its token.
 * @throws (rejects) StoreRefusedError if so many members refuse the floor that no majority is left
 */
export async function agreeOnToken(agreement: Agreement): Promise<boolean> {
  const { members, quorumClaim, time } = agreement;
  if (!quorumClaim.isOurs) {
    const existing = await findExistingToken(agreement);
    if (existing !== "none") return recordTokens(quorumClaim, existing);
  }
  const clocks = members.flatMap(({ index, wallOffsetMs }) => {
    const clock =
      wallOffsetMs === null ? quorumClaim.clockOfMember(index) : BigInt(Math.ceil((time() + wallOffsetMs) * 1_000));
    return clock === 0n ? [] : [clock];
  });
  const highest = findHighest([quorumClaim.floor - CLOCK_LEAD, ...clocks], findMaxClock(clocks, quorumClaim.majority));
  return requestToken(agreement, highest + CLOCK_LEAD);
}

/** Waits for the answers of members until the deadline of the agreement. */
function waitForAnswers(
  { time, deadline }: Agreement,
  calls: readonly MemberCall[],
  isDecided: () => boolean,
): Promise<void> {
  return waitForMembers(calls, isDecided, deadline - time());
}

/** A clock above this is far ahead of a majority: the other members would refuse a floor derived from it. */
function findMaxClock(clocks: readonly bigint[], majority: number): bigint {
  const descending = clocks.toSorted((left, right) => (left < right ? 1 : -1));
  return (descending[Math.min(majority, descending.length) - 1] ?? 0n) + HALF_DAY;
}

function findHighest([first, ...others]: readonly [bigint, ...bigint[]], max: bigint): bigint {
  return others.reduce((highest, value) => (value > highest && value <= max ? value : highest), first);
}

function recordTokens(quorumClaim: QuorumClaim, tokens: TokenRange | null): boolean {
  if (tokens === null || tokens.token < quorumClaim.floor) return false;
  quorumClaim.onTokensAgreed(tokens);
  return true;
}

/**
 * Finds the token of another client's grant. It makes no token claim, which could be taken for that client's. "none": a
 * majority has no token claim of it, so it never had a token.
 */
async function findExistingToken(agreement: Agreement): Promise<TokenRange | "none" | null> {
  const { members, quorumClaim } = agreement;
  const tokenClaim = createTokenClaim(quorumClaim.claim, 0n);
  const answers: Answer[] = [];
  const calls = members.map((member): MemberCall => {
    const onAnswers = ([answer]: readonly (Answer | undefined)[]): void => {
      if (answer !== undefined) answers.push(answer);
    };
    return { member, settled: member.call((driver) => driver.renew([tokenClaim])).then(onAnswers, () => undefined) };
  });
  // if a majority's answers differ, more answers do not help
  await waitForAnswers(agreement, calls, () => answers.length >= quorumClaim.majority);
  return findAgreedTokens(answers, quorumClaim.majority) ?? findTokenInLists(agreement);
}

/** The same if token claims were replaced: only lists show the original tokens. */
async function findTokenInLists(agreement: Agreement): Promise<TokenRange | "none" | null> {
  const { members, quorumClaim } = agreement;
  const [{ key }] = createTokenClaim(quorumClaim.claim, 0n).locks;
  const tag = publicTag(quorumClaim.claim.id);
  const lists: ClaimView[][] = [];
  const findTokens = (): TokenRange | null => findTokensByTag(lists.flat(), quorumClaim.majority).get(tag) ?? null;
  const calls = members.map((member): MemberCall => {
    const onViews = (views: readonly ClaimView[]): void => {
      lists.push(views.filter((view) => parseClaimTag(view) === tag));
    };
    return { member, settled: member.call((driver) => listAll(driver, { key })).then(onViews, () => undefined) };
  });
  await waitForAnswers(agreement, calls, () => findTokens() !== null);
  const emptyCount = lists.filter((views) => views.length === 0).length;
  return emptyCount >= quorumClaim.majority ? "none" : findTokens();
}

/** Makes the token claim at all members with this floor, and with higher ones while the members' tokens differ. */
async function requestToken(agreement: Agreement, firstFloor: bigint): Promise<boolean> {
  const { members, quorumClaim } = agreement;
  const maxRaises = quorumClaim.isOurs ? MAX_FLOOR_RAISES : 0;
  quorumClaim.onTokenClaim();
  let floor = firstFloor;
  for (let raises = 0; ; raises++) {
    const tokenClaim = createTokenClaim(quorumClaim.claim, floor);
    const { answers, errors } = await sendTokenClaims(agreement, tokenClaim);
    if (recordTokens(quorumClaim, findAgreedTokens([...answers.values()], quorumClaim.majority))) return true;
    const fatal = errors.filter(isFatalError);
    if (fatal.length > members.length - quorumClaim.majority) throw fatal[0];
    if (raises === maxRaises || answers.size < quorumClaim.majority || quorumClaim.isDone) return false;
    // a member's counter is ahead of the floor: start again at all members with a higher floor
    await releaseTokenClaims(agreement, [...answers.keys()], tokenClaim);
    if (quorumClaim.isDone) return false;
    floor = raiseFloor([...answers.values()], floor) + CLOCK_LEAD;
  }
}

/** Sends the token claim to all members; settles as soon as a majority has agreed. */
async function sendTokenClaims(
  agreement: Agreement,
  tokenClaim: Claim,
): Promise<{ readonly answers: ReadonlyMap<Member, Answer>; readonly errors: readonly unknown[] }> {
  const { members, quorumClaim } = agreement;
  const answers = new Map<Member, Answer>();
  const errors: unknown[] = [];
  const calls = members.map((member) => {
    const settled = sendTokenClaim(member, quorumClaim, tokenClaim).then(
      (answer) => void answers.set(member, answer),
      (error: unknown) => void errors.push(error),
    );
    return { member, settled };
  });
  await waitForAnswers(agreement, calls, () => findAgreedTokens([...answers.values()], quorumClaim.majority) !== null);
  return { answers, errors };
}

function raiseFloor(answers: readonly Answer[], floor: bigint): bigint {
  const ends = answers.map((answer) => (answer.state === "held" ? answer.token + BigInt(answer.tokenCount) : 0n));
  return findHighest([floor, ...ends], floor + HALF_DAY);
}

async function releaseTokenClaims(agreement: Agreement, members: readonly Member[], tokenClaim: Claim): Promise<void> {
  const calls = members.map((member) => ({
    member,
    // a member whose release failed still has the token claim; its old token then differs from the agreed one
    settled: member
      .call((driver) => driver.release([{ claim: tokenClaim, hasUnansweredClaim: false }]))
      .then(
        () => undefined,
        () => undefined,
      ),
  }));
  await waitForAnswers(agreement, calls, () => false);
}

/**
 * Renews the token claims of granted claims at this member, without waiting. A token claim that is gone, or has another
 * token, is replaced.
 */
export function renewTokenClaims(member: Member, quorumClaims: readonly QuorumClaim[]): void {
  const grantedClaims = quorumClaims.filter(({ tokens }) => tokens !== null);
  if (grantedClaims.length === 0) return;
  const onAnswers = (answers: readonly (Answer | undefined)[]): void => {
    for (const [index, quorumClaim] of grantedClaims.entries()) {
      const { claim, tokens, isDone } = quorumClaim;
      const memberTokenClaim = quorumClaim.tokenClaim(member.index);
      const answer = answers[index];
      const isDifferent = answer?.state === "held" && !memberTokenClaim.isReplaced && answer.token !== tokens?.token;
      if ((answer?.state !== "none" && !isDifferent) || isDone || tokens === null) continue;
      memberTokenClaim.isReplaced = true;
      // after a failure the next renewal retries
      sendTokenClaim(member, quorumClaim, createReplacementTokenClaim(claim, tokens.token)).catch(() => undefined);
    }
  };
  const tokenClaims = grantedClaims.map((quorumClaim) => getTokenClaim(quorumClaim, member.index));
  member.call((driver) => driver.renew(tokenClaims)).then(onAnswers, () => undefined);
}

/** The token claim that a member should have. */
export function getTokenClaim(quorumClaim: QuorumClaim, index: number): Claim {
  const { claim } = quorumClaim;
  return quorumClaim.tokenClaim(index).isReplaced
    ? createReplacementTokenClaim(claim, 0n)
    : createTokenClaim(claim, 0n);
}

/** Makes a token claim at one member. After a failure it stays counted as in flight, since it may still arrive. */
async function sendTokenClaim(member: Member, quorumClaim: QuorumClaim, tokenClaim: Claim): Promise<Answer> {
  const memberTokenClaim = quorumClaim.tokenClaim(member.index);
  const isSent = member.isOpen;
  if (isSent) memberTokenClaim.unansweredCalls++;
  const answer = await member.call((driver) => driver.claim(tokenClaim));
  if (isSent) memberTokenClaim.unansweredCalls--;
  return answer;
}

/**
 * Its permits are shared, so that it is granted at once. It is kept and renewed beside the vote, so that the token can
 * be found again.
 */
export function createTokenClaim(claim: Claim, floor: bigint): Claim {
  const [{ key }] = claim.locks;
  return {
    id: toTokenClaimId(claim.id),
    locks: [{ key: toTokenKey(key), permits: 1, limit: ALL_PERMITS }],
    ttlMs: claim.ttlMs,
    tokenCount: claim.tokenCount,
    floor,
    wait: false,
    label: publicTag(claim.id),
  };
}

/**
 * The token claim for a member that has lost the first one. Its answer has a token of that member only; the grant's
 * token is in its label, which lists show.
 */
export function createReplacementTokenClaim(claim: Claim, token: bigint): Claim {
  const tokenClaim = createTokenClaim(claim, token);
  return { ...tokenClaim, id: toTokenClaimId(tokenClaim.id), label: `${tokenClaim.label} ${token}` };
}

/** The tag of the claim that a listed token claim belongs to. */
function parseClaimTag({ label }: ClaimView): string {
  return label.split(" ")[0] as string;
}

/** Is this the key of token claims? It cannot be locked, and no list shows it. */
export function isTokenKey(key: string): boolean {
  return key.endsWith(TOKEN_KEY_SUFFIX) || key.startsWith(HASHED_TOKEN_KEY_PREFIX);
}

/**
 * Is this key too long for the suffix? The key of its token claims then begins with HASHED_TOKEN_KEY_PREFIX, not with
 * this key.
 */
export function hasHashedTokenKey(key: string): boolean {
  return Buffer.byteLength(key) + TOKEN_KEY_SUFFIX.length > MAX_KEY_BYTES;
}

/** The token range that a majority has granted; null: there is none. */
function findAgreedTokens(answers: readonly Answer[], majority: number): TokenRange | null {
  return findSharedTokens(
    answers.filter((answer) => answer.state === "held"),
    majority,
  );
}

/** The grants' tokens, from listed token claims, by the tag of the claim. */
export function findTokensByTag(views: readonly ClaimView[], majority: number): ReadonlyMap<string, TokenRange> {
  const rangesByTag = new Map<string, TokenRange[]>();
  for (const view of views) {
    const { answer, tokenCount } = view;
    if (answer.state !== "held") continue;
    const tag = parseClaimTag(view);
    const replacedToken = /^\S+ (\d+)$/.exec(view.label)?.[1];
    rangesByTag.set(tag, [
      ...(rangesByTag.get(tag) ?? []),
      replacedToken === undefined ? answer : { token: BigInt(replacedToken), tokenCount },
    ]);
  }
  const tokensByTag = new Map<string, TokenRange>();
  for (const [tag, ranges] of rangesByTag) {
    const tokens = findSharedTokens(ranges, majority);
    if (tokens !== null) tokensByTag.set(tag, tokens);
  }
  return tokensByTag;
}

function findSharedTokens(ranges: readonly TokenRange[], majority: number): TokenRange | null {
  const countsByToken = new Map<bigint, number[]>();
  for (const { token, tokenCount } of ranges)
    countsByToken.set(token, [...(countsByToken.get(token) ?? []), tokenCount]);
  for (const [token, counts] of countsByToken)
    if (counts.length >= majority) return { token, tokenCount: Math.min(...counts) };
  return null;
}

/** Derives the token claim's id from the claim's. Both are secrets; any client with the claim's id can derive it. */
function toTokenClaimId(id: string): string {
  const digest = createHash("sha256").update(`ticket ${id}`).digest();
  let text = "";
  for (let index = 0; index < 26; index++) text += "abcdefghijklmnopqrstuvwxyz234567"[(digest[index] as number) & 31];
  return text;
}

/** The key of the token claims of a key. */
export function toTokenKey(key: string): string {
  return hasHashedTokenKey(key)
    ? HASHED_TOKEN_KEY_PREFIX + createHash("sha256").update(key).digest("hex")
    : key + TOKEN_KEY_SUFFIX;
}
