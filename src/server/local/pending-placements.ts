/**
 * Claims that wait for the disk before they may be placed. They stand in no line yet, but the calls that come behind them
 * must find them: a renewal must not take them for gone, and what was released is not placed, however long the disk takes.
 */

import type { ClaimId } from "../../spi/driver.ts";
import { RequestError } from "../backend.ts";

interface PendingPlacement {
  /** `claim` calls of this id that wait. */
  callCount: number;
  /** It was released meanwhile. */
  isCancelled: boolean;
}

export class PendingPlacements {
  readonly #placements = new Map<ClaimId, PendingPlacement>();
  readonly #maxPlacements: number;

  /** most: claims that may wait at a time. */
  constructor(maxPlacements: number) {
    this.#maxPlacements = maxPlacements;
  }

  has(id: ClaimId): boolean {
    return this.#placements.has(id);
  }

  /** Nobody wants it any more, if it waits here. */
  cancel(id: ClaimId): void {
    const placement = this.#placements.get(id);
    if (placement !== undefined) placement.isCancelled = true;
  }

  /** Settles with the write: is the claim still wanted? @throws RequestError if too many wait; whatever the write rejects with */
  async waitForWrite(id: ClaimId, write: Promise<void>): Promise<boolean> {
    const placement = this.#placements.get(id) ?? { callCount: 0, isCancelled: false };
    this.#placements.set(id, placement);
    placement.callCount++;
    try {
      if (this.#placements.size > this.#maxPlacements) {
        write.catch(() => undefined); // its failure is nobody's here
        throw new RequestError("LIMIT", `at most ${this.#maxPlacements} claims on this server`);
      }
      await write;
      return !placement.isCancelled;
    } finally {
      if (--placement.callCount === 0) this.#placements.delete(id);
    }
  }
}
