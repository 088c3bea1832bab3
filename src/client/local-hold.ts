/** One local holder's time with a claim: from its grant, or the hand-off to it, until its last handle is given back. */

import { LockLostError } from "../errors.ts";
import type { LostReason } from "../spi/driver.ts";
import type { ActiveClaim } from "./active-claim.ts";
import type { LocalQueue } from "./local-queue.ts";
import type { LockTarget } from "./lock-target.ts";
import type { ScheduledTask } from "./scheduled-task.ts";

export class LocalHold implements ScheduledTask {
  readonly queue: LocalQueue;
  readonly activeClaim: ActiveClaim;
  readonly target: LockTarget;
  readonly token: bigint;
  readonly grantedAt: number;
  /** Handles not given back yet; the first one, and one for each request that joined. */
  refCount = 1;
  /** Async contexts entered with it: who is in one cannot let the lock travel. */
  openFlows = 0;
  lostReason: LostReason | null = null;
  #abort: AbortController | null = null;
  // the end of maxHold
  readonly mayRunEarly = false;
  dueAt = 0;
  heapIndex = -1;

  constructor(queue: LocalQueue, activeClaim: ActiveClaim, target: LockTarget, token: bigint, grantedAt: number) {
    this.queue = queue;
    this.activeClaim = activeClaim;
    this.target = target;
    this.token = token;
    this.grantedAt = grantedAt;
  }

  /** May it be joined, and does its holder still count as one? Says nothing of the lease. */
  get isOpen(): boolean {
    return this.refCount > 0;
  }

  /** By our clocks, read now. */
  get isHeld(): boolean {
    return this.refCount > 0 && this.lostReason === null && this.queue.isHeld(this.activeClaim);
  }

  get remainingMs(): number {
    return this.isHeld ? this.queue.remainingMs(this.activeClaim) : 0;
  }

  onDue(): void {
    this.queue.exceedMaxHold(this);
  }

  lose(reason: LostReason): void {
    if (this.lostReason !== null) return;
    this.lostReason = reason;
    this.#abort?.abort(this.toLostError());
  }

  /** Aborted when it is lost. Of all who have joined it, so that none leaves anything behind; made when first read. */
  get signal(): AbortSignal {
    this.#abort ??= new AbortController();
    // read now: the timer that would tell of a loss may be late
    if (!this.isHeld && this.lostReason !== null) this.#abort.abort(this.toLostError());
    return this.#abort.signal;
  }

  toLostError(): LockLostError {
    return lockLostError(this.lostReason ?? "expired", this.target.keys);
  }

  /** One handle less; the last one gives it back. Was it ours until now? */
  release(): boolean | Promise<boolean> {
    this.refCount--;
    return this.refCount > 0 ? this.wasHeldUntilNow() : this.queue.release(this);
  }

  wasHeldUntilNow(): boolean {
    return this.lostReason === null && this.queue.isHeld(this.activeClaim);
  }
}

const LOSS_TEXT: Readonly<Record<LostReason, string>> = {
  expired: "its lease ended before a renewal succeeded",
  released: "it was released",
  revoked: "it was revoked",
  maxHold: "it was held longer than maxHold allows",
  unknown: "the store does not know it any more",
};

/** The loss as its holder is told it. */
export function lockLostError(reason: LostReason, keys: readonly string[]): LockLostError {
  return new LockLostError(`lost the lock on ${formatKeys(keys)}: ${LOSS_TEXT[reason]}`, reason, { keys });
}

/** Keys for a message. */
export function formatKeys(keys: readonly string[]): string {
  const listed = keys.slice(0, 3).map((key) => JSON.stringify(key.length > 60 ? `${key.slice(0, 60)}…` : key));
  return keys.length > 3 ? `${listed.join(", ")} and ${keys.length - 3} more` : listed.join(", ");
}
