/** References on the command line: the variable that has one, and whether the store still holds its claim. */

import type { Locks } from "../client/locks.ts";
import type { DetachedClaim } from "../protocol/lock-reference.ts";
import type { ClaimView } from "../spi/driver.ts";
import { publicTag } from "../util/ids.ts";

/** A reference; within a run that of its lock. */
export const REFERENCE_VARIABLE = "HOLDFAST_REFERENCE";

/** The view of a reference's claim if the store reports it as held; otherwise null. */
export async function findHeldView(
  locks: Locks,
  { claim, firstToken }: DetachedClaim,
  key: string,
): Promise<ClaimView | null> {
  const tag = publicTag(claim.id);
  const views = await locks.list(key);
  return (
    views.find((view) => view.tag === tag && view.answer.state === "held" && view.answer.token === firstToken) ?? null
  );
}
