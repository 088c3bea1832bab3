/** Attaches one detached claim. The client holds it once the store has confirmed it. */

import type { LostReason } from "../errors.ts";
import { LockLostError } from "../errors.ts";
import type { DetachedClaim } from "../protocol/lock-reference.ts";
import { wrapDriverError } from "./driver-error.ts";
import type { ActiveClaim } from "./engine.ts";
import { formatKeys, LocalHold, lockLostError } from "./local-hold.ts";
import { LocalQueue } from "./local-queue.ts";
import type { LocalQueues } from "./local-queues.ts";

export class AttachAttempt {
  readonly activeClaim: ActiveClaim;
  /** Rejects with LockLostError and the reason, or with DriverError if the store did not answer for the length of the lease. */
  readonly result: Promise<LocalHold>;
  readonly #queue: LocalQueue;
  readonly #token: bigint;
  #resolve!: (localHold: LocalHold) => void;
  #reject!: (error: unknown) => void;

  constructor(queues: LocalQueues, { claim, firstToken, token, prefix }: DetachedClaim) {
    const keys = claim.locks.map(({ key }) => key.slice(prefix.length));
    this.#queue = new LocalQueue(queues, { locks: claim.locks, keys }, claim.ttlMs, null);
    this.#token = token;
    this.result = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.activeClaim = queues.engine.resume(
      claim,
      queues.toClaimSettings(claim.ttlMs, true),
      this.#queue,
      firstToken,
      1,
    );
    this.#queue.startAttach(this);
  }

  onConfirmed(): void {
    const queue = this.#queue;
    const localHold = new LocalHold(
      queue,
      this.activeClaim,
      queue.target,
      this.#token,
      queue.parent.engine.clock.now(),
    );
    queue.finishAttach(localHold);
    queue.parent.tokenFloors.record(queue.target.locks, this.#token);
    this.#resolve(localHold);
  }

  onLost(reason: LostReason): void {
    const { keys } = this.#queue.target;
    const { lastError } = this.activeClaim;
    const isUnanswered = reason === "expired" && lastError !== null;
    this.reject(
      isUnanswered
        ? wrapDriverError(lastError, `could not attach ${formatKeys(keys)}`, keys)
        : attachLostError(reason, keys),
    );
  }

  /** Releases nothing, so that attaching with the same reference can be retried. */
  reject(error: unknown): void {
    this.#queue.finishAttach(null);
    this.#queue.parent.engine.forget(this.activeClaim);
    this.#reject(error);
  }
}

function attachLostError(reason: LostReason, keys: readonly string[]): LockLostError {
  if (reason !== "unknown") return lockLostError(reason, keys);
  const message = `no such lock on ${formatKeys(keys)}: it was released, or its lease expired long ago`;
  return new LockLostError(message, reason, { keys });
}
