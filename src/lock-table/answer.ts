/** Where an entry of the table stands, as its client is told. */

import type { Answer, ClaimId } from "../spi/driver.ts";
import type { ClaimRecord } from "./claim-record.ts";
import type { QueueEntry } from "./key-queue.ts";

/** How many places ahead are looked at to say when a waiting claim should ask again. */
const MAX_RECHECK_SCAN = 32;

/** A waiting claim that has become held, or one that was revoked: to be announced to its owner. */
export interface Notification {
  readonly id: ClaimId;
  readonly owner: unknown;
  readonly answer: Answer;
}

/** What the table answers about this entry now. `sessionMs`: what "session" claims are told as their lease. */
export function toAnswer(record: ClaimRecord, now: number, sessionMs: number): Answer {
  const { ttlMs: requestedTtl } = record.claim;
  // a list is made a little at a time: it may come to an entry whose end the table has not noticed yet
  const ttlMs = requestedTtl === "session" ? sessionMs : Math.max(record.expiresAt - now, 0);
  if (record.isHeld) return { state: "held", token: BigInt(record.token), tokens: record.tokenCount, ttlMs };
  return {
    state: "waiting",
    ttlMs,
    recheckMs: computeRecheckMs(record, now, requestedTtl === "session" ? sessionMs : requestedTtl),
  };
}

/** When a place ahead may run out: the soonest of the nearest ones, at most a ttl from now. */
function computeRecheckMs(record: ClaimRecord, now: number, ttlMs: number): number {
  let earliestExpiry = now + ttlMs;
  let entry = (record.entries.at(-1) as QueueEntry).queue.entries.first;
  for (let scanned = 0; entry !== null && entry.record !== record && scanned < MAX_RECHECK_SCAN; scanned++) {
    earliestExpiry = Math.min(earliestExpiry, entry.record.expiresAt);
    entry = entry.next;
  }
  return Math.max(earliestExpiry - now, 1);
}
