/** Attaches detached locks. */

import { UnsupportedError } from "../errors.ts";
import { decodeReference } from "../protocol/decode-reference.ts";
import type { Acquirer } from "./acquirer.ts";
import { AttachAttempt } from "./attach-attempt.ts";
import type { LocalHold } from "./local-hold.ts";
import { formatKeys } from "./local-hold.ts";
import type { Lock } from "./lock.ts";
import { LockHandle } from "./lock.ts";

/**
 * Returns the lock of a reference once the store has confirmed that it is still held.
 * @throws TypeError for a damaged reference; UnsupportedError if this client already holds the lock; LockLostError with
 * the reason; DriverError if the store did not answer
 */
export async function attach(acquirer: Acquirer, reference: unknown): Promise<Lock> {
  const parts = decodeReference(reference);
  const { engine } = acquirer.queues;
  for (const { claim, prefix } of parts) {
    // with two local runs of one claim, each push about its end would reach only one of them
    if (!engine.listClaims().some((activeClaim) => activeClaim.claim.id === claim.id)) continue;
    const keys = claim.locks.map(({ key }) => key.slice(prefix.length));
    throw new UnsupportedError(`this client already holds the detached lock on ${formatKeys(keys)}`, { keys });
  }
  const results = await Promise.allSettled(parts.map((part) => new AttachAttempt(acquirer.queues, part).result));
  const localHolds: LocalHold[] = [];
  for (const result of results) if (result.status === "fulfilled") localHolds.push(result.value);
  const failure = results.find((result) => result.status === "rejected");
  if (failure !== undefined) {
    // transfer out instead of releasing: the caller may retry with the same reference
    for (const localHold of localHolds) localHold.queue.transferOut(localHold);
    throw failure.reason;
  }
  const lostHold = localHolds.find(({ isHeld }) => !isHeld);
  if (lostHold !== undefined) {
    // this part was lost while the others were being confirmed
    for (const localHold of localHolds) if (localHold !== lostHold) localHold.queue.transferOut(localHold);
    throw lostHold.toLostError();
  }
  const keys = localHolds.flatMap(({ target }) => target.keys);
  return new LockHandle(localHolds as [LocalHold, ...LocalHold[]], keys, acquirer.flowHolds);
}
