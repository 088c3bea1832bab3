/** What a run holds while its command works: locks of its own, or ones it joined. */

import type { Lock } from "../../../client/lock.ts";
import { LockLostError } from "../../../errors.ts";
import type { Driver } from "../../../spi/driver.ts";
import { formatDuration } from "../../../util/duration.ts";
import { detachFor } from "./hold-at-least.ts";
import type { InheritedLock } from "./inherited-locks.ts";
import { monitorParentLocks } from "./parent-lock-monitor.ts";

/** Held keys, however we came to them. */
export interface HeldLock {
  readonly keys: readonly string[];
  /** The highest of our own lock, or that of a joined one. Null on a store without fencing. */
  readonly token: bigint | null;
  /** That of each key, in their order. They differ where several keys are taken one by one, or were joined. Null without fencing. */
  readonly tokens: readonly bigint[] | null;
  /** What `holdfast check` of the child asks about: a secret. */
  readonly reference: string;
  /** That of the lock of our own; null: all of it is joined. */
  readonly ownReference: string | null;
  /** Aborted with a LockLostError. */
  readonly lostSignal: AbortSignal;
  /** The length of the lease; null where silence does not end it. */
  readonly leaseMs: number | null;
  /** What is left of the lease by our clock. */
  remainingMs(): number;
  /** Why too little is left, when we have not renewed it for so long. */
  describeLoss(silentMs: number): string;
  /**
   * Gives back what is ours to give; false if it was lost. Before `atLeastMs` have passed since the grant it stays held
   * without us for what is left of them. @throws DriverError then, if the store did not confirm that
   */
  release(atLeastMs?: number): Promise<boolean>;
}

/** A lock of our own. */
export function ownLock(
  lock: Lock,
  details: { readonly reference: string; readonly fencing: boolean; readonly leaseMs: number | null },
): HeldLock {
  const { reference, fencing, leaseMs } = details;
  const heldAt = performance.now();
  return {
    reference,
    ownReference: reference,
    leaseMs,
    keys: lock.keys,
    token: fencing ? lock.token : null,
    tokens: fencing ? lock.keys.map((key) => lock.tokenOf(key)) : null,
    lostSignal: lock.signal,
    remainingMs: () => lock.remainingMs,
    describeLoss: (silentMs) => `store unreachable for ${formatDuration(silentMs)}`,
    release(minHoldMs = 0) {
      const remainingMs = heldAt + minHoldMs - performance.now();
      return remainingMs < 1 || lock.signal.aborted ? lock.release() : detachFor(lock, remainingMs);
    },
  };
}

/** Keys that outer runs hold, beside our own lock if there is one. */
export function inheritedLock(
  ownLock: HeldLock | null,
  inherited: readonly [InheritedLock, ...InheritedLock[]],
  driver: Driver,
): HeldLock {
  const tokens = new Map(inherited.map(({ key, token }) => [key, token]));
  for (const [index, key] of (ownLock?.keys ?? []).entries()) tokens.set(key, ownLock?.tokens?.[index] ?? 0n);
  const keys = [...tokens.keys()].sort();
  const lostController = new AbortController();
  ownLock?.lostSignal.addEventListener("abort", () => lostController.abort(ownLock.lostSignal.reason), { once: true });
  const parentMonitor = monitorParentLocks(driver, inherited, (key, reason) =>
    lostController.abort(new LockLostError("the run around this one ended", reason, { keys: [key] })),
  );
  const [firstInherited] = inherited;
  const leases = [ownLock?.leaseMs ?? null, ...inherited.map(({ leaseMs }) => leaseMs)].filter((ms) => ms !== null);
  return {
    keys,
    token: ownLock === null ? firstInherited.token : ownLock.token,
    tokens: ownLock?.tokens === null ? null : keys.map((key) => tokens.get(key) as bigint),
    reference: ownLock?.reference ?? firstInherited.reference,
    ownReference: ownLock?.reference ?? null,
    lostSignal: lostController.signal,
    leaseMs: leases.length === 0 ? null : Math.min(...leases),
    remainingMs: () => Math.min(ownLock?.remainingMs() ?? Number.POSITIVE_INFINITY, parentMonitor.remainingMs()),
    describeLoss: () => "its lease ends and was not renewed",
    async release() {
      parentMonitor.stop();
      const wasHeld = await (ownLock?.release() ?? true);
      return wasHeld && !lostController.signal.aborted;
    },
  };
}
