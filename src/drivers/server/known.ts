/** What the driver was told last of its claims: what it can tell a server that has forgotten them. */

import type { Reclaimed, WireAnswer } from "../../protocol/frames.ts";
import type { ServerHello } from "../../protocol/hello.ts";
import type { Claim } from "../../spi/driver.ts";

/** Two clocks may drift apart by this much between an answer and a new start of the server. */
const DRIFT_MS = 250;

/** A reclaim frame holds claims of about this many bytes. */
const FRAME_BYTES = 65_536;

export class Known {
  readonly claim: Claim;
  /** The last answer other than "none"; null: none has come. */
  answer: WireAnswer | null = null;
  /** The start of the server that gave it. */
  start: string | null = null;
  arrival = 0;
  /** Our own lease ends then: nine tenths of what was left, counted from when the call was sent. */
  believedUntil = 0;
  /** The server's lease ends then at the earliest. */
  until = 0;
  /** By how much the wall clock was ahead of ours when the last answer came: a sleep since then widens it. */
  aheadMs = 0;
  /** Released, or over: what comes now is not for us. */
  gone = false;

  constructor(claim: Claim) {
    this.claim = claim;
  }

  learn(answer: WireAnswer, sentAt: number, { start, sessionMs }: ServerHello, aheadMs: number): void {
    if (answer.state === "none") return;
    this.aheadMs = aheadMs;
    const most = this.claim.ttlMs === "session" ? sessionMs : this.claim.ttlMs;
    const leftMs = Math.min(answer.ttlMs, most);
    this.believedUntil = Math.max(this.believedUntil, sentAt + 0.9 * leftMs);
    this.until = Math.max(this.until, sentAt + leftMs);
    this.start = start;
    this.push(answer);
  }

  /** A push carries no send time, so it lengthens nothing. */
  push(answer: WireAnswer): void {
    if (answer.state === "waiting") {
      // an answer older than the grant
      if (this.answer?.state === "held") return;
      if (answer.arrival !== undefined) this.arrival = answer.arrival;
    }
    // of a held claim only its tokens are looked at: to keep the old object spares the collector one for each renewal
    if (answer.state === "held" && this.answer?.state === "held" && answer.token === this.answer.token) return;
    this.answer = answer;
  }

  /** May it still be asked back? */
  stands(now: number, { silenceKeeps }: ServerHello, aheadMs: number): boolean {
    if (this.claim.ttlMs === "session" && silenceKeeps) return true;
    return now + this.sleptMs(aheadMs) < this.believedUntil;
  }

  /**
   * How long the machine has slept since the last answer, as the wall clock tells: a server that has forgotten all takes
   * our word for what is left of a lease. A wall clock that was set forward costs claims that a new start might have kept.
   */
  sleptMs(aheadMs: number): number {
    const byMs = aheadMs - this.aheadMs;
    return byMs > DRIFT_MS ? byMs : 0;
  }
}

/** What was known, in parts of which each fits into a frame; at least one part. */
export function reclaimable(all: Iterable<Known>, now: number, aheadMs: number): Reclaimed[][] {
  let part: Reclaimed[] = [];
  const parts = [part];
  let bytes = 0;
  for (const known of all) {
    const { claim, answer, arrival, until } = known;
    if (answer === null || answer.state === "none") continue;
    const size = 200 + 3 * claim.label.length + claim.holds.reduce((sum, { key }) => sum + 3 * key.length + 30, 0);
    if (bytes + size > FRAME_BYTES && part.length > 0) {
      part = [];
      parts.push(part);
      bytes = 0;
    }
    bytes += size;
    const { state } = answer;
    const was: Reclaimed["was"] =
      state === "held"
        ? {
            state,
            token: answer.token,
            tokens: answer.tokens,
            leftMs: Math.max(until - now - known.sleptMs(aheadMs), 0),
          }
        : { state, arrival };
    part.push({ claim, was });
  }
  return parts;
}

/** Parts of at most that many, in order. */
export function chunksOf<T>(items: readonly T[], most: number): (readonly T[])[] {
  const parts: (readonly T[])[] = [];
  for (let from = 0; from < items.length; from += most) parts.push(items.slice(from, from + most));
  return parts;
}
