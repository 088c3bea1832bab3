/** What the driver was told last of its claims: what it can tell a server that has forgotten them. */

import type { ReclaimItem, WireAnswer } from "../../protocol/frames.ts";
import type { ServerHello } from "../../protocol/handshake.ts";
import type { Claim } from "../../spi/driver.ts";

/** Two clocks may drift apart by this much between an answer and a new start of the server. */
const MAX_DRIFT_MS = 250;

/** A reclaim frame holds claims of about this many bytes. */
const MAX_FRAME_BYTES = 65_536;

export class ClaimMemory {
  readonly claim: Claim;
  /** The last answer other than "none"; null: none has come. */
  lastAnswer: WireAnswer | null = null;
  /** The start of the server that gave it. */
  runId: string | null = null;
  arrival = 0;
  /** Our own lease ends then: nine tenths of what was left, counted from when the call was sent. */
  believedUntil = 0;
  /** The server's lease ends then at the earliest. */
  leaseEndsAt = 0;
  /** By how much the wall clock was ahead of ours when the last answer came: a sleep since then widens it. */
  wallOffsetMs = 0;
  /** Released, or over: what comes now is not for us. */
  isReleased = false;

  constructor(claim: Claim) {
    this.claim = claim;
  }

  recordAnswer(
    answer: WireAnswer,
    sentAt: number,
    { start: runId, sessionMs }: ServerHello,
    wallOffsetMs: number,
  ): void {
    if (answer.state === "none") return;
    this.wallOffsetMs = wallOffsetMs;
    const maxTtlMs = this.claim.ttlMs === "session" ? sessionMs : this.claim.ttlMs;
    const remainingMs = Math.min(answer.ttlMs, maxTtlMs);
    this.believedUntil = Math.max(this.believedUntil, sentAt + 0.9 * remainingMs);
    this.leaseEndsAt = Math.max(this.leaseEndsAt, sentAt + remainingMs);
    this.runId = runId;
    this.recordPush(answer);
  }

  /** A push carries no send time, so it lengthens nothing. */
  recordPush(answer: WireAnswer): void {
    if (answer.state === "waiting") {
      // an answer older than the grant
      if (this.lastAnswer?.state === "held") return;
      if (answer.arrival !== undefined) this.arrival = answer.arrival;
    }
    // of a held claim only its tokens are looked at: to keep the old object spares the collector one for each renewal
    if (answer.state === "held" && this.lastAnswer?.state === "held" && answer.token === this.lastAnswer.token) return;
    this.lastAnswer = answer;
  }

  /** May it still be asked back? */
  isReclaimable(now: number, { silenceKeeps }: ServerHello, wallOffsetMs: number): boolean {
    if (this.claim.ttlMs === "session" && silenceKeeps) return true;
    return now + this.suspendedMs(wallOffsetMs) < this.believedUntil;
  }

  /**
   * How long the machine has slept since the last answer, as the wall clock tells: a server that has forgotten all takes
   * our word for what is left of a lease. A wall clock that was set forward costs claims that a new start might have kept.
   */
  suspendedMs(wallOffsetMs: number): number {
    const driftMs = wallOffsetMs - this.wallOffsetMs;
    return driftMs > MAX_DRIFT_MS ? driftMs : 0;
  }
}

/** What was known, in parts of which each fits into a frame; at least one part. */
export function toReclaimBatches(memories: Iterable<ClaimMemory>, now: number, wallOffsetMs: number): ReclaimItem[][] {
  let batch: ReclaimItem[] = [];
  const batches = [batch];
  let bytes = 0;
  for (const memory of memories) {
    const { claim, lastAnswer, arrival, leaseEndsAt } = memory;
    if (lastAnswer === null || lastAnswer.state === "none") continue;
    const size = 200 + 3 * claim.label.length + claim.holds.reduce((sum, { key }) => sum + 3 * key.length + 30, 0);
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
            tokens: lastAnswer.tokens,
            leftMs: Math.max(leaseEndsAt - now - memory.suspendedMs(wallOffsetMs), 0),
          }
        : { state, arrival };
    batch.push({ claim, lastState });
  }
  return batches;
}

/** Parts of at most that many, in order. */
export function chunk<T>(items: readonly T[], maxSize: number): (readonly T[])[] {
  const chunks: (readonly T[])[] = [];
  for (let start = 0; start < items.length; start += maxSize) chunks.push(items.slice(start, start + maxSize));
  return chunks;
}
