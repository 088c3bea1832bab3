/**
 * The calls of driver.claim that have no reply yet. A client library may hold such a call back for long, so that it
 * reaches the server after the release of its claim and enters the queue again: when its late reply shows that, the
 * claim is released again.
 */

import type { Claim, ClaimId } from "../../spi/driver.ts";
import { SlotMap } from "../../util/slot-map.ts";
import type { LateReply } from "./connection.ts";

/** Those of one claim. */
interface PendingCalls {
  count: number;
  /** Whether the claim was released since the last of them was made. */
  isReleased: boolean;
}

export interface ClaimCall extends LateReply {
  /** The call is answered, has failed, or has timed out: then its reply may come yet. */
  readonly onSettled: () => void;
}

export class ClaimCalls {
  readonly #pending = new SlotMap<ClaimId, PendingCalls>();
  readonly #releaseAgain: (claim: Claim) => void;

  constructor(releaseAgain: (claim: Claim) => void) {
    this.#releaseAgain = releaseAgain;
  }

  /** A call is about to be sent. */
  start(claim: Claim): ClaimCall {
    const { id } = claim;
    const calls = this.#pending.get(id) ?? { count: 0, isReleased: false };
    this.#pending.set(id, calls);
    calls.isReleased = false; // the quorum driver may claim a released id again
    calls.count++;
    let hasTimedOut = false;
    const onReply = (): void => {
      if (--calls.count === 0) this.#pending.delete(id);
    };
    return {
      onTimeout: () => {
        hasTimedOut = true;
      },
      onSettled: () => {
        if (!hasTimedOut) onReply();
      },
      onLateReply: () => {
        onReply();
        if (calls.isReleased) this.#releaseAgain(claim);
      },
    };
  }

  /** A release is about to be sent. */
  onRelease(id: ClaimId): void {
    const calls = this.#pending.get(id);
    if (calls !== undefined) calls.isReleased = true;
  }
}
