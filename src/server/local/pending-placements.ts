/**
 * Claims that wait for the disk before they may enter a queue. Later calls must find them even so: a renewal must not
 * treat them as ended, and a claim that was released meanwhile must not be placed, however late the write completes.
 */

import type { ClaimId } from "../../spi/driver.ts";
import { RequestError } from "../request-error.ts";

interface PendingPlacement {
  /** Number of waiting `claim` calls with this id. */
  callCount: number;
  /** The claim was released meanwhile. */
  isCancelled: boolean;
}

export class PendingPlacements {
  readonly #placements = new Map<ClaimId, PendingPlacement>();
  readonly #maxPlacements: number;

  /** maxPlacements: how many claims may wait at a time. */
  constructor(maxPlacements: number) {
    this.#maxPlacements = maxPlacements;
  }

  has(id: ClaimId): boolean {
    return this.#placements.has(id);
  }

  /** Cancels the claim if it waits here. */
  cancel(id: ClaimId): void {
    const placement = this.#placements.get(id);
    if (placement !== undefined) placement.isCancelled = true;
  }

  /**
   * Waits for the write, and returns whether the claim is still wanted.
   * @throws RequestError if too many wait; any error of the write
   */
  async waitForWrite(id: ClaimId, write: Promise<void>): Promise<boolean> {
    const placement = this.#placements.get(id) ?? { callCount: 0, isCancelled: false };
    this.#placements.set(id, placement);
    placement.callCount++;
    try {
      if (this.#placements.size > this.#maxPlacements) {
        write.catch(() => undefined); // this call is refused anyway: avoids an unhandled rejection
        throw new RequestError("LIMIT", `at most ${this.#maxPlacements} claims on this server`);
      }
      await write;
      return !placement.isCancelled;
    } finally {
      if (--placement.callCount === 0) this.#placements.delete(id);
    }
  }
}
