/**
 * Issues the fencing tokens of one table: token = max(last + 1, floor, clock), where the clock is the highest wall clock in
 * microseconds that the table has seen, so it never goes back while the table lives.
 *
 * Invariant: every token is higher than all tokens granted before on its keys. A queue keeps its last token only until the
 * clock has passed it (decision 0008); after that every token from the clock is higher anyway. So an idle key needs no
 * memory. These numbers stay below 2^53 until the year 2255.
 */

import type { Claim } from "../spi/driver.ts";
import { DeadlineHeap } from "../util/deadline-heap.ts";
import { SlotMap } from "../util/slot-map.ts";
import type { ClaimRecord } from "./claim-record.ts";
import { KeyQueue } from "./key-queue.ts";

/** A floor further ahead of the clock than this is refused: a floor near the highest number would use up the key's tokens. */
const MAX_FLOOR_LEAD_MICROS = 86_400_000_000;

/** The queues of a table by key, and the tokens issued on them. */
export class TokenIssuer {
  readonly queues: SlotMap<string, KeyQueue> = new SlotMap();
  /** Queues that became empty before the clock had passed their last token; due at that token. */
  readonly #idleQueues = new DeadlineHeap<KeyQueue>();
  #clock = 0;
  /** All tokens are below it. */
  ceiling: number;

  constructor(ceiling: number) {
    this.ceiling = ceiling;
  }

  /** Are empty queues still kept for their last token? */
  get hasIdleQueues(): boolean {
    return this.#idleQueues.nextDueAt() !== null;
  }

  get clock(): number {
    return this.#clock;
  }

  /** Advances the clock and deletes the empty queues whose last token it has passed. */
  advance(micros: number): void {
    if (micros <= this.#clock) return;
    this.#clock = micros;
    if (!this.hasIdleQueues) return;
    for (
      let queue = this.#idleQueues.takeDue(micros - 1);
      queue !== null;
      queue = this.#idleQueues.takeDue(micros - 1)
    ) {
      this.forgetQueue(queue);
    }
  }

  /** Returns the queue of a key; creates it if necessary. */
  getOrCreateQueue(key: string): KeyQueue {
    let queue = this.queues.get(key);
    if (queue === undefined) {
      queue = new KeyQueue(key);
      this.queues.add(key, queue);
    }
    return queue;
  }

  /** Deletes an empty queue, now or as soon as the clock has passed its last token. */
  forgetQueue(queue: KeyQueue): void {
    if (queue.entries.size > 0 || queue.isRemoved) return;
    if (queue.lastToken < this.#clock) {
      queue.isRemoved = true;
      this.#idleQueues.remove(queue);
      this.queues.delete(queue.key);
    } else this.#idleQueues.set(queue, queue.lastToken);
  }

  /** Is this floor close enough to the clock to be accepted? */
  acceptsFloor(floor: bigint, micros: number): boolean {
    return floor === 0n || Number(floor) <= Math.max(this.#clock, micros) + MAX_FLOOR_LEAD_MICROS;
  }

  /** The first token that may be granted to this claim now. */
  peekNext(claim: Claim): number {
    let token = Math.max(this.#clock, Number(claim.floor));
    for (const { key } of claim.locks) token = Math.max(token, (this.queues.get(key)?.lastToken ?? 0) + 1);
    return token;
  }

  /** Issues a token range to a claim that has entered all its queues; null if the range would reach the ceiling. */
  issue({ claim, entries }: ClaimRecord): number | null {
    let token = Math.max(this.#clock, Number(claim.floor));
    for (const { queue } of entries) if (queue.lastToken >= token) token = queue.lastToken + 1;
    if (token + claim.tokenCount > this.ceiling) return null;
    for (const { queue } of entries) queue.lastToken = token + claim.tokenCount - 1;
    return token;
  }

  /** Records that tokens up to this one have been issued on the claim's keys. */
  recordIssued(claim: Claim, last: number): void {
    for (const { key } of claim.locks) {
      const queue = this.getOrCreateQueue(key);
      queue.lastToken = Math.max(queue.lastToken, last);
    }
  }
}
