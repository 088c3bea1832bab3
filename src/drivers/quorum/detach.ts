/**
 * Detaches claims from this process's sessions at members that have sessions: on a Unix socket the claims would end
 * with this process.
 */

import type { Member } from "./member.ts";
import { waitForMembers } from "./member.ts";
import type { QuorumClaim } from "./quorum-claim.ts";
import { toMajority } from "./quorum-claim.ts";
import { Tally } from "./tally.ts";
import { getTokenClaim } from "./tokens.ts";

/**
 * Says of each held claim whether a majority keeps its vote without this process.
 * @throws (rejects) Error if fewer than a majority have answered, or have its token claim: the claim would come back
 *   with another token
 */
export async function detachClaims(
  members: readonly Member[],
  quorumClaims: readonly QuorumClaim[],
  timeoutMs: number,
  remainingMs: number | undefined,
): Promise<readonly boolean[]> {
  const majority = toMajority(members.length);
  const keptCounts = [...quorumClaims, ...quorumClaims].map(() => 0);
  const tally = new Tally(members.length);
  const calls = members.map((member) => {
    const claims = [
      ...quorumClaims.map(({ claim }) => claim),
      ...quorumClaims.map((quorumClaim) => getTokenClaim(quorumClaim, member.index)),
    ];
    const settled = member
      .call((driver) => driver.detach?.(claims, remainingMs) ?? renewAsDetached(driver.renew(claims)))
      .then(
        (flags) => {
          for (const index of keptCounts.keys())
            if (flags[index] === true) keptCounts[index] = (keptCounts[index] as number) + 1;
          tally.add({ state: "none" });
        },
        (error: unknown) => tally.addError(error),
      );
    return { member, settled };
  });
  await waitForMembers(calls, () => false, timeoutMs);
  if (!tally.hasMajorityAnswered) throw tally.failure;
  const isKept = (index: number): boolean => (keptCounts[index] as number) >= majority;
  const lacksTokenClaim = quorumClaims.some((_, index) => isKept(index) && !isKept(index + quorumClaims.length));
  if (lacksTokenClaim)
    throw new Error(
      "quorum: cannot detach: fewer than a majority of members have the token claim; the lock stays attached",
    );
  return quorumClaims.map((_, index) => isKept(index));
}

async function renewAsDetached(renewal: ReturnType<Member["driver"]["renew"]>): Promise<readonly boolean[]> {
  return (await renewal).map((answer) => answer?.state === "held");
}
