/** References on the command line: the variable that has one, and whether the store still holds its claim. */

import type { Locks } from "../client/locks.ts";
import type { DetachedClaim } from "../protocol/lock-reference.ts";
import type { ClaimInfo } from "../spi/claim-info.ts";
import { publicTag } from "../util/ids.ts";

/** A reference; within a run that of its lock. */
export const REFERENCE_VARIABLE = "HOLDFAST_REFERENCE";

/** A reference's claim as listed, if the store reports it as held; otherwise null. */
export async function findHeld(
  locks: Locks,
  { claim, firstToken }: DetachedClaim,
  key: string,
): Promise<ClaimInfo | null> {
  const tag = publicTag(claim.id);
  const claims = await locks.list(key);
  const isSame = (info: ClaimInfo): boolean => info.tag === tag && (info.token ?? 0n) === firstToken;
  return claims.find((info) => info.state === "held" && isSame(info)) ?? null;
}
