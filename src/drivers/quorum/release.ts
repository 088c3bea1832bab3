/** Releases claims at every member, their votes and token claims in one call. */

import type { Claim, ClaimId } from "../../spi/driver.ts";
import type { Member } from "./member.ts";
import { waitForMembers } from "./member.ts";
import type { QuorumClaim } from "./quorum-claim.ts";
import { toMajority } from "./quorum-claim.ts";
import { Tally } from "./tally.ts";
import { createReplacementTokenClaim, createTokenClaim } from "./token-claims.ts";

/**
 * Says of each claim whether a majority still had it. A member that has not answered gets the release again when it
 * answers again.
 * @throws (rejects) Error if fewer than a majority have answered
 */
export async function releaseClaims(
  members: readonly Member[],
  quorumClaims: readonly QuorumClaim[],
  unanswered: ReadonlySet<ClaimId> | undefined,
  timeoutMs: number,
): Promise<readonly boolean[]> {
  const majority = toMajority(members.length);
  const foundCounts = quorumClaims.map(() => 0);
  const tally = new Tally(members.length);
  const calls = members.map((member) => {
    const { claims, unansweredIds } = collectReleases(quorumClaims, member.index, unanswered);
    const settled = member
      .call((driver) => (unansweredIds.size > 0 ? driver.release(claims, unansweredIds) : driver.release(claims)))
      .then(
        (flags) => {
          for (const index of foundCounts.keys())
            if (flags[index] === true) foundCounts[index] = (foundCounts[index] as number) + 1;
          tally.add({ state: "none" });
        },
        (error: unknown) => {
          tally.addError(error);
          for (const claim of claims) member.addPendingRelease(claim, claim.ttlMs === "session" ? 0 : claim.ttlMs);
        },
      );
    return { member, settled };
  });
  const isDecidedFor = (foundCount: number): boolean =>
    foundCount >= majority || tally.answeredCount - foundCount > members.length - majority;
  const isDecided = (): boolean =>
    tally.errors.length > members.length - majority || (tally.hasMajorityAnswered && foundCounts.every(isDecidedFor));
  await waitForMembers(calls, isDecided, timeoutMs);
  if (!tally.hasMajorityAnswered) throw tally.failure;
  return foundCounts.map(
    (foundCount) => foundCount > 0 && tally.answeredCount - foundCount <= members.length - majority,
  );
}

/** The claims to release at one member: first the votes, in the order of the quorum claims, then the token claims. */
function collectReleases(
  quorumClaims: readonly QuorumClaim[],
  index: number,
  unanswered: ReadonlySet<ClaimId> | undefined,
): { readonly claims: readonly Claim[]; readonly unansweredIds: ReadonlySet<ClaimId> } {
  const unansweredIds = new Set<ClaimId>();
  const claims = quorumClaims.map(({ claim }) => claim);
  const tokenClaims: Claim[] = [];
  for (const { claim, memberClaims, hasTokenClaim, isOurs } of quorumClaims) {
    const memberClaim = memberClaims[index];
    // a claim of another client, or one released before, has no known calls: any may be in flight
    const isUnanswered = !isOurs || unanswered?.has(claim.id) === true;
    if (isUnanswered || (memberClaim?.claimsInFlight ?? 0) > 0 || memberClaim?.isOutcomeUnknown === true)
      unansweredIds.add(claim.id);
    if (!hasTokenClaim && isOurs) continue;
    const replacements =
      isOurs && memberClaim?.isTokenClaimReplaced !== true ? [] : [createReplacementTokenClaim(claim, 0n)];
    for (const tokenClaim of [createTokenClaim(claim, 0n), ...replacements]) {
      tokenClaims.push(tokenClaim);
      if (!isOurs || (memberClaim?.tokenClaimsInFlight ?? 0) > 0) unansweredIds.add(tokenClaim.id);
    }
  }
  return { claims: [...claims, ...tokenClaims], unansweredIds };
}
