/**
 * Issues the fencing tokens of one table by the token rule. Its clock is the highest wall clock in microseconds that the table has
 * seen, so it never goes back while the table lives.
 */

import type { ClaimRecord } from "./key-queue.ts";
import { acceptsFloor, nextToken } from "./token-rule.ts";

export class TokenIssuer {
  /** All tokens are below it. */
  ceiling: number;
  #clock = 0;

  constructor(ceiling: number) {
    this.ceiling = ceiling;
  }

  get clock(): number {
    return this.#clock;
  }

  /** Advances the clock; false: it has seen this time already. */
  advance(micros: number): boolean {
    if (micros <= this.#clock) return false;
    this.#clock = micros;
    return true;
  }

  acceptsFloor(lastToken: number, floor: bigint, micros: number): boolean {
    return acceptsFloor(lastToken, floor, Math.max(this.#clock, micros));
  }

  /** The first token that may be granted after `lastToken`, the highest one granted on the claim's keys. */
  next(floor: bigint, lastToken: number): number {
    return nextToken(lastToken, floor, this.#clock);
  }

  /** Issues a token range to a claim that has entered all its queues; null if the range would reach the ceiling. */
  issue({ claim, entries }: ClaimRecord): number | null {
    let lastToken = 0;
    for (const { queue } of entries) if (queue.lastToken > lastToken) lastToken = queue.lastToken;
    const token = this.next(claim.floor, lastToken);
    if (token + claim.tokenCount > this.ceiling) return null;
    for (const { queue } of entries) queue.lastToken = token + claim.tokenCount - 1;
    return token;
  }

  /**
   * Lengthens the token range of a held claim, at most up to the ceiling. Not if a later token was issued on one of its
   * keys: the range would not be consecutive.
   */
  extend(record: ClaimRecord, tokenCount: number): void {
    const { token, entries } = record;
    const count = Math.min(tokenCount, this.ceiling - token);
    if (count <= record.tokenCount) return;
    const lastToken = token + record.tokenCount - 1;
    for (const { queue } of entries) if (queue.lastToken !== lastToken) return;
    record.tokenCount = count;
    for (const { queue } of entries) {
      queue.lastToken = token + count - 1;
      queue.noteTokenCount(count);
    }
  }
}
