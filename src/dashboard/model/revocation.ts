/** What a revocation will do, in words. */

import type { ListedClaim } from "../../gateway/dashboard/view-types.ts";
import { formatAge } from "./time-format.ts";

/** The longest reason, in characters. */
export const MAX_REASON_LENGTH = 256;

/** A reason as it is sent; null: there is none, or it is too long. */
export function toReason(text: string): string | null {
  const reason = text.trim();
  return reason === "" || [...reason].length > MAX_REASON_LENGTH ? null : reason;
}

/** What happens without "free the key at once". @param leftMs what remains of the lease; null: it has a session */
export function describeRevocation(leftMs: number | null): string {
  const loss = "The holder learns that it has lost the lock.";
  return leftMs === null
    ? `${loss} The key is free when the holder releases it or its session ends.`
    : `${loss} The key is free when the holder releases it or its lease ends, in ${formatAge(leftMs)} at the latest.`;
}

/** What happens with it. @param hasFencing the store has fencing tokens */
export function describeRemoval(hasFencing: boolean): string {
  const overlap = "The key is free at once. Another claim can get it while the holder may still be working.";
  return hasFencing ? `${overlap} Only a resource that checks fencing tokens is safe from that.` : overlap;
}

/** Why a claim of a key cannot be revoked; null: it can. */
export function refusalFor(claim: ListedClaim, refusal: string | null): string | null {
  if (refusal !== null) return refusal;
  if (claim.state === "held" && claim.token === null)
    return "This store does not list the token of this holder, so the claim cannot be revoked from here.";
  return null;
}
