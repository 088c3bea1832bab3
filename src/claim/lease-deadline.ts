/** The lease-time rule (decision 0003): how long a client may believe an answer, and when it renews. */

import { ATTEMPTS_PER_LEASE, BELIEVED_SHARE, RENEWALS_PER_LEASE } from "./lease-shares.ts";
import type { AnsweredEvent, ClaimSettings, HeldState, PendingState } from "./state.ts";

/** Until when a client may believe a lease, counted from when the answered call was sent. */
export function believedUntil(sentAt: number, remainingMs: number, ttlMs: number): number {
  return sentAt + BELIEVED_SHARE * Math.min(remainingMs, ttlMs);
}

/**
 * The deadline after an answer. A call sent before a suspension extends nothing: more time has passed since than the
 * local clock has counted.
 */
export function extendDeadline(
  state: PendingState | HeldState,
  event: AnsweredEvent,
  remainingMs: number,
  settings: ClaimSettings,
): number {
  // until the first answer the deadline follows from the requested ttl, and the store may have granted less
  const isFirst = state.status === "asking" && !settings.survivesSilence;
  if (event.call <= state.callState.lastCallBeforeSuspend)
    return isFirst ? state.deadline - BELIEVED_SHARE * Math.max(settings.ttlMs - remainingMs, 0) : state.deadline;
  const deadline = believedUntil(event.sentAt, remainingMs, settings.ttlMs);
  return isFirst ? deadline : Math.max(state.deadline, deadline);
}

/**
 * Renews a third of the lease after its start, which was before the send if the answer has less than the full ttl.
 * Never at once, since a store that does not extend the lease would then be called in a busy loop.
 */
export function nextRenewalAt(sentAt: number, remainingMs: number, settings: ClaimSettings): number {
  const boundedMs = Math.min(remainingMs, settings.ttlMs);
  return Math.max(
    sentAt - (settings.ttlMs - boundedMs) + settings.ttlMs / RENEWALS_PER_LEASE,
    sentAt + Math.max(boundedMs / ATTEMPTS_PER_LEASE, settings.ttlMs / 200),
  );
}
