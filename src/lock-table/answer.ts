/** The answers of the lock table to clients. */

import type { Answer, ClaimId } from "../spi/driver.ts";
import type { ClaimRecord } from "./claim-record.ts";
import type { QueueEntry } from "./key-queue.ts";

/** How many entries ahead are read to compute when a waiting claim should be rechecked. */
const MAX_RECHECK_SCAN = 32;

/** A change that must be pushed to a claim's owner: a waiting claim was granted, or a claim was revoked. */
export interface Notification {
  readonly id: ClaimId;
  readonly owner: unknown;
  readonly answer: Answer;
}

/** The answer for this claim now. `sessionMs`: the lease that the answers for "session" claims have. */
export function toAnswer(record: ClaimRecord, now: number, sessionMs: number): Answer {
  const { ttlMs: requestedTtl } = record.claim;
  // a list is made in steps, so it may contain a claim that has expired since the table was last advanced
  const remainingMs = requestedTtl === "session" ? sessionMs : Math.max(record.expiresAt - now, 0);
  if (record.isHeld) return { state: "held", token: BigInt(record.token), tokenCount: record.tokenCount, remainingMs };
  return {
    state: "waiting",
    remainingMs,
    recheckMs: computeRecheckMs(record, now, requestedTtl === "session" ? sessionMs : requestedTtl),
  };
}

/** The time until a claim ahead may expire: the earliest of those at the front of the queue, at most a ttl from now. */
function computeRecheckMs(record: ClaimRecord, now: number, ttlMs: number): number {
  let earliestExpiry = now + ttlMs;
  let entry = (record.entries.at(-1) as QueueEntry).queue.entries.first;
  for (let scanned = 0; entry !== null && entry.record !== record && scanned < MAX_RECHECK_SCAN; scanned++) {
    earliestExpiry = Math.min(earliestExpiry, entry.record.expiresAt);
    entry = entry.next;
  }
  return Math.max(earliestExpiry - now, 1);
}
