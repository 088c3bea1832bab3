/** The result of a request for a claim. */

import type { LostReason } from "../errors.ts";
import type { Claim, Pause } from "../spi/driver.ts";

export type ClaimOutcome =
  | { readonly state: "held"; readonly claim: Claim; readonly token: bigint; readonly remainingMs: number }
  | { readonly state: "waiting"; readonly claim: Claim; readonly paused?: Pause | undefined }
  | LostOutcome;

/** The claim has ended, or was not granted at once. */
export interface LostOutcome {
  readonly state: "none";
  readonly reason: LostReason;
  readonly paused?: Pause | undefined;
}

/** "held" with the rest of the lease; "expired" if the store answered so late that nothing is left. */
export function heldOutcome(endsAt: number, now: number, claim: Claim, token: bigint): ClaimOutcome {
  const remainingMs = Math.floor(endsAt - now);
  return remainingMs > 0 ? { state: "held", claim, token, remainingMs } : { state: "none", reason: "expired" };
}

/** The outcome for a claim that does not exist, or that this account may not see. */
export function unknownOutcome(): LostOutcome {
  return { state: "none", reason: "unknown" };
}
