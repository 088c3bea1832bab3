/** The first step of a claim that is attached; loaded with the first attach(). */

import type { ClaimSettings, Step } from "./state.ts";
import { afterSend, delayedCall, RENEW_EFFECTS } from "./state.ts";

/**
 * Resumes a claim that another client made. Only its token is known, so it is unconfirmed until the store has answered
 * a renewal, which is sent at once; the effect "restored" reports that answer.
 */
export function resumeClaim(settings: ClaimSettings, now: number, token: bigint, tokenCount: number): Step {
  // a `claim` call of the other client may still be in flight
  const callState = { ...afterSend(delayedCall(now), now, false), hasUnansweredClaim: true };
  const unconfirmedUntil = now + settings.ttlMs;
  return {
    state: {
      status: "held",
      callState,
      deadline: now,
      dueAt: now,
      token,
      tokenCount,
      grantedAtCall: 0,
      doubtfulSince: 0,
      unconfirmedUntil,
      isWanted: false,
      transfer: "none",
    },
    effects: RENEW_EFFECTS,
  };
}
