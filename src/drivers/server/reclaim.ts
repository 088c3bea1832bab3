/**
 * The last answers to the driver's claims, which it reports to a server that has forgotten them.
 *
 * Why the driver keeps the times of each lease, although the core has a deadline for each claim (decision 0082): a
 * client tells a restarted server the rest of the lease itself, of which the core believes nine tenths, and the server
 * accepts it without any clock of its own. DriverEvents.heldTokens() says neither this nor anything about a claim that
 * waits, whose lease must not have ended either, or it would take the place of others in the queue. So the question to
 * the core could replace none of the times here, only repeat one.
 */

import { believedUntil } from "../../claim/lease-deadline.ts";
import type { ReclaimItem, WireAnswer } from "../../protocol/frames.ts";
import type { ServerHello } from "../../protocol/handshake.ts";
import type { Claim } from "../../spi/driver.ts";
import { CLOCK_TOLERANCE_MS } from "../../util/suspend-detector.ts";

/** The approximate size of a reclaim frame. */
const MAX_FRAME_BYTES = 65_536;

export class ClaimMemory {
  readonly claim: Claim;
  /** The last answer other than "none"; null: none has come. */
  lastAnswer: WireAnswer | null = null;
  /** The server run that gave it. */
  runId: string | null = null;
  arrival = 0;
  /** The client's deadline: nine tenths of the remaining lease, counted from when the call was sent. */
  believedUntil = 0;
  /** The server's lease ends at this time at the earliest. */
  leaseEndsAt = 0;
  /**
   * The wall clock minus the monotonic clock at the last answer. A suspension of the machine since then increases it.
   */
  wallOffsetMs = 0;
  /** It is not in use in this process. */
  isIdle = false;
  /** Grants pass over it until suspend(false). */
  isSuspended = false;
  /** Released or ended: later answers are ignored. */
  isReleased = false;

  constructor(claim: Claim) {
    this.claim = claim;
  }

  recordAnswer(answer: WireAnswer, sentAt: number, { runId, sessionMs }: ServerHello, wallOffsetMs: number): void {
    if (answer.state === "none") return;
    this.wallOffsetMs = wallOffsetMs;
    const maxTtlMs = this.claim.ttlMs === "session" ? sessionMs : this.claim.ttlMs;
    const remainingMs = Math.min(answer.remainingMs, maxTtlMs);
    this.believedUntil = Math.max(this.believedUntil, believedUntil(sentAt, answer.remainingMs, maxTtlMs));
    this.leaseEndsAt = Math.max(this.leaseEndsAt, sentAt + remainingMs);
    this.runId = runId;
    this.recordPush(answer);
  }

  /** A push has no send time, so it extends no deadline. */
  recordPush(answer: WireAnswer): void {
    if (answer.state === "waiting") {
      // the answer is older than the grant
      if (this.lastAnswer?.state === "held") return;
      if (answer.arrival !== undefined) this.arrival = answer.arrival;
    }
    // only the tokens of a held answer are used: keeping the old object lets the new one die young
    const { lastAnswer } = this;
    const isSame =
      answer.state === "held" &&
      lastAnswer?.state === "held" &&
      answer.token === lastAnswer.token &&
      answer.tokenCount === lastAnswer.tokenCount;
    if (!isSame) this.lastAnswer = answer;
  }

  /** May the claim still be reclaimed? */
  isReclaimable(now: number, { endsWithConnection }: ServerHello, wallOffsetMs: number): boolean {
    if (this.claim.ttlMs === "session" && endsWithConnection) return true;
    return now + this.suspendedMs(wallOffsetMs) < this.believedUntil;
  }

  /**
   * How long the machine was suspended since the last answer, according to the wall clock. A server that has forgotten
   * its claims trusts the client's remaining lease. A wall clock that was set forward loses claims that a restarted
   * server could have kept.
   */
  suspendedMs(wallOffsetMs: number): number {
    const driftMs = wallOffsetMs - this.wallOffsetMs;
    return driftMs > CLOCK_TOLERANCE_MS ? driftMs : 0;
  }
}

/** The claims with an answer, in batches that each fit into a frame; at least one batch. */
export function toReclaimBatches(memories: Iterable<ClaimMemory>, now: number, wallOffsetMs: number): ReclaimItem[][] {
  let batch: ReclaimItem[] = [];
  const batches = [batch];
  let bytes = 0;
  for (const memory of memories) {
    const { claim, lastAnswer, arrival, leaseEndsAt } = memory;
    if (lastAnswer === null || lastAnswer.state === "none") continue;
    const size = 200 + 3 * claim.label.length + claim.locks.reduce((sum, { key }) => sum + 3 * key.length + 30, 0);
    if (bytes + size > MAX_FRAME_BYTES && batch.length > 0) {
      batch = [];
      batches.push(batch);
      bytes = 0;
    }
    bytes += size;
    const { state } = lastAnswer;
    const lastState: ReclaimItem["lastState"] =
      state === "held"
        ? {
            state,
            token: lastAnswer.token,
            tokenCount: lastAnswer.tokenCount,
            remainingMs: Math.max(leaseEndsAt - now - memory.suspendedMs(wallOffsetMs), 0),
          }
        : { state, arrival };
    batch.push({ claim, lastState });
  }
  return batches;
}
