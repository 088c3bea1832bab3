/**
 * Fencing tokens of one table (design A.2): token = max(last + 1, floor, clock), where the clock is the wall clock in
 * microseconds as far as it has ever been seen, so it never goes back while the table lives.
 *
 * Invariant: every token lies above all tokens granted before on its keys. A line remembers its last token only until
 * the clock has passed it; after that every token of the clock lies above it anyway. So an idle key leaves nothing.
 * Numbers here stay below 2^53 until the year 2255.
 */

import type { Claim } from "../spi/driver.ts";
import { DeadlineHeap } from "../util/deadline-heap.ts";
import { SlotMap } from "../util/slot-map.ts";
import type { ClaimRecord } from "./claim-record.ts";
import { KeyQueue } from "./key-queue.ts";

/** A floor further ahead of the clock than this is refused: it would end the key's tokens for ever. */
const MAX_FLOOR_LEAD_MICROS = 86_400_000_000;

/** The lines of a table by key, and the tokens granted in them. */
export class TokenIssuer {
  readonly queues: SlotMap<string, KeyQueue> = new SlotMap();
  /** Lines that became empty before the clock had passed their last token, due at that token. Each stands here once. */
  readonly #idleQueues = new DeadlineHeap<KeyQueue>();
  #clock = 0;
  /** Tokens stay below it. */
  ceiling: number;

  constructor(ceiling: number) {
    this.ceiling = ceiling;
  }

  /** Are idle lines still remembered for their last token? */
  get hasIdleQueues(): boolean {
    return this.#idleQueues.nextDueAt() !== null;
  }

  get clock(): number {
    return this.#clock;
  }

  /** Moves the clock on, and forgets the lines it has passed. */
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

  /** The line of a key, made if need be. */
  getOrCreateQueue(key: string): KeyQueue {
    let queue = this.queues.get(key);
    if (queue === undefined) {
      queue = new KeyQueue(key);
      this.queues.add(key, queue);
    }
    return queue;
  }

  /** Forgets an empty line, now or as soon as the clock has passed its last token. */
  forgetQueue(queue: KeyQueue): void {
    if (queue.entries.size > 0 || queue.isRemoved) return;
    if (queue.lastToken < this.#clock) {
      queue.isRemoved = true;
      this.#idleQueues.remove(queue);
      this.queues.delete(queue.key);
    } else this.#idleQueues.set(queue, queue.lastToken);
  }

  /** Could a token at this floor be granted? */
  acceptsFloor(floor: bigint, micros: number): boolean {
    return floor === 0n || Number(floor) <= Math.max(this.#clock, micros) + MAX_FLOOR_LEAD_MICROS;
  }

  /** The first token that may be granted to this claim now. */
  peekNext(claim: Claim): number {
    let token = Math.max(this.#clock, Number(claim.floor));
    for (const { key } of claim.holds) token = Math.max(token, (this.queues.get(key)?.lastToken ?? 0) + 1);
    return token;
  }

  /** Sets a run aside for a claim that has a seat in each of its lines; null if it would reach the ceiling. */
  issue({ claim, entries }: ClaimRecord): number | null {
    let token = Math.max(this.#clock, Number(claim.floor));
    for (const { queue } of entries) if (queue.lastToken >= token) token = queue.lastToken + 1;
    if (token + claim.tokens > this.ceiling) return null;
    for (const { queue } of entries) queue.lastToken = token + claim.tokens - 1;
    return token;
  }

  /** Tokens up to this one have been granted on the claim's keys. */
  recordIssued(claim: Claim, last: number): void {
    for (const { key } of claim.holds) {
      const queue = this.getOrCreateQueue(key);
      queue.lastToken = Math.max(queue.lastToken, last);
    }
  }
}
