/**
 * Claims that wait for the disk before they may be placed. They stand in no line yet, but the calls that come behind them
 * must find them: a renewal must not take them for gone, and what was released is not placed, however long the disk takes.
 */

import type { ClaimId } from "../spi/driver.ts";
import { Refusal } from "./backend.ts";

interface Waiting {
  /** `claim` calls of this id that wait. */
  calls: number;
  /** It was released meanwhile. */
  left: boolean;
}

export class Placing {
  readonly #waiting = new Map<ClaimId, Waiting>();
  readonly #most: number;

  /** most: claims that may wait at a time. */
  constructor(most: number) {
    this.#most = most;
  }

  has(id: ClaimId): boolean {
    return this.#waiting.has(id);
  }

  /** Nobody wants it any more, if it waits here. */
  leave(id: ClaimId): void {
    const waiting = this.#waiting.get(id);
    if (waiting !== undefined) waiting.left = true;
  }

  /** Settles with the write: is the claim still wanted? @throws Refusal if too many wait; whatever the write rejects with */
  async after(id: ClaimId, write: Promise<void>): Promise<boolean> {
    const waiting = this.#waiting.get(id) ?? { calls: 0, left: false };
    this.#waiting.set(id, waiting);
    waiting.calls++;
    try {
      if (this.#waiting.size > this.#most) {
        write.catch(() => undefined); // its failure is nobody's here
        throw new Refusal("LIMIT", `at most ${this.#most} claims on this server`);
      }
      await write;
      return !waiting.left;
    } finally {
      if (--waiting.calls === 0) this.#waiting.delete(id);
    }
  }
}
