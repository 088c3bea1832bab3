/** One local holder's time with a claim: from its grant or hand-off until its last handle is released. */

import type { LostReason } from "../errors.ts";
import { LockLostError } from "../errors.ts";
import type { ActiveClaim } from "./engine.ts";
import type { LocalQueue } from "./local-queue.ts";
import type { LockTarget } from "./lock-target.ts";
import type { ScheduledTask } from "./scheduler.ts";

export class LocalHold implements ScheduledTask {
  readonly queue: LocalQueue;
  readonly activeClaim: ActiveClaim;
  readonly target: LockTarget;
  readonly token: bigint;
  readonly grantedAt: number;
  /** The number of unreleased handles: the first one, and one for each request that joined. */
  refCount = 1;
  /** The number of async contexts entered with this lock: while there is one, the lock cannot be detached. */
  openFlows = 0;
  lostReason: LostReason | null = null;
  #abort: AbortController | null = null;
  // a scheduled task: due at the end of maxHold
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

  /** Can requests still join it? Says nothing about the lease. */
  get isOpen(): boolean {
    return this.refCount > 0;
  }

  /** Is the lock held, by this process's clocks, read now? */
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

  /** Aborted when the lock is lost. Created when first read, and shared by all requests that joined. */
  get signal(): AbortSignal {
    this.#abort ??= new AbortController();
    // check the lease now: the timer that reports a loss may be late
    if (!this.isHeld && this.lostReason !== null) this.#abort.abort(this.toLostError());
    return this.#abort.signal;
  }

  toLostError(): LockLostError {
    return lockLostError(this.lostReason ?? "expired", this.target.keys);
  }

  /** Releases one handle, and the lock with the last one. True if the lock was held until now. */
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
  unknown: "the store has no record of it",
};

/** The error by which a holder learns of the loss. */
export function lockLostError(reason: LostReason, keys: readonly string[]): LockLostError {
  return new LockLostError(`lost the lock on ${formatKeys(keys)}: ${LOSS_TEXT[reason]}`, reason, { keys });
}

/** Formats keys for a message: at most three, each of at most 60 characters. */
export function formatKeys(keys: readonly string[]): string {
  const listed = keys.slice(0, 3).map((key) => JSON.stringify(key.length > 60 ? `${key.slice(0, 60)}…` : key));
  return keys.length > 3 ? `${listed.join(", ")} and ${keys.length - 3} more` : listed.join(", ");
}
