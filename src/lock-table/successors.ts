/**
 * Names the successors of a claim that was just granted: the claims of its owner that wait directly behind it, to which the owner may
 * hand the lock on without a call (see `Answer.successors`).
 *
 * Invariant: the token range of the claim has a token for each of them that is at least its floor.
 */

import type { Answer, Claim, ClaimId } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import type { ClaimRecord, QueueEntry } from "./key-queue.ts";
import type { TokenIssuer } from "./token-issuer.ts";

/** How many are named at most: the message stays short, and a claim that arrives now does not wait for an unbounded number of holders. */
const MAX_SUCCESSORS = 63;

/** Lengthens the token range of the claim by one token for each successor, and returns their ids. */
export function nameSuccessors(record: ClaimRecord, tokenIssuer: TokenIssuer): readonly ClaimId[] {
  const ids: ClaimId[] = [];
  if (!asksForSuccessors(record.claim) || record.owner === null) return ids;
  let { next } = record.entries[0] as QueueEntry;
  while (next !== null && ids.length < MAX_SUCCESSORS && isSuccessor(next, record, ids.length + 1)) {
    ids.push(next.record.claim.id);
    next = next.next;
  }
  if (ids.length > 0) tokenIssuer.extend(record, 1 + ids.length);
  return ids.slice(0, record.tokenCount - 1);
}

function isSuccessor({ record: { claim, owner } }: QueueEntry, holder: ClaimRecord, distance: number): boolean {
  return (
    asksForSuccessors(claim) &&
    owner === holder.owner &&
    claim.ttlMs === holder.claim.ttlMs &&
    Number(claim.floor) <= holder.token + distance
  );
}

/** Other claims have no successors and are none, whatever their client asks for: others may hold the lock beside them, or another key. */
function asksForSuccessors({ successors, locks }: Claim): boolean {
  const [{ permits, limit }] = locks;
  return successors === true && locks.length === 1 && permits === ALL_PERMITS && limit === ALL_PERMITS;
}

/** The same grant without its successors. */
export function withoutSuccessors(answer: Answer): Answer {
  if (answer.state !== "held" || answer.successors === undefined) return answer;
  const { successors: _successors, ...plainAnswer } = answer;
  return plainAnswer;
}
