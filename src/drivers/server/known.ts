/** What the driver was told last of its claims: what it can tell a server that has forgotten them. */

import type { Reclaimed, WireAnswer } from "../../protocol/frames.ts";
import type { ServerHello } from "../../protocol/hello.ts";
import type { Claim } from "../../spi/driver.ts";

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
  /** Released, or over: what comes now is not for us. */
  gone = false;

  constructor(claim: Claim) {
    this.claim = claim;
  }

  learn(answer: WireAnswer, sentAt: number, { start, sessionMs }: ServerHello): void {
    if (answer.state === "none") return;
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
    this.answer = answer;
  }

  /** May it still be asked back? */
  stands(now: number, { silenceKeeps }: ServerHello): boolean {
    if (this.claim.ttlMs === "session" && silenceKeeps) return true;
    return now < this.believedUntil;
  }
}

/** What was known, in parts of which each fits into a frame; at least one part. */
export function reclaimable(all: Iterable<Known>, now: number): Reclaimed[][] {
  let part: Reclaimed[] = [];
  const parts = [part];
  let bytes = 0;
  for (const { claim, answer, arrival, until } of all) {
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
        ? { state, token: answer.token, tokens: answer.tokens, leftMs: Math.max(until - now, 0) }
        : { state, arrival };
    part.push({ claim, was });
  }
  return parts;
}

/** Parts of at most that many, in order; what is big stands alone. */
export function chunksOf<T>(
  items: readonly T[],
  most: number,
  isBig: (item: T) => boolean = () => false,
): (readonly T[])[] {
  if (items.length <= 1 || (items.length <= most && !items.some(isBig))) return [items];
  const parts: T[][] = [];
  let room = 0;
  for (const item of items) {
    if (room > 0 && !isBig(item)) {
      (parts.at(-1) as T[]).push(item);
      room--;
      continue;
    }
    parts.push([item]);
    room = isBig(item) ? 0 : most - 1;
  }
  return parts;
}
