/** The lock of a run while its command works: acquired by the run itself, or joined from outer runs, or both. */

import type { Lock } from "../../../client/lock.ts";
import type { Locks } from "../../../client/locks.ts";
import { isFatalError, LockLostError } from "../../../errors.ts";
import type { Driver } from "../../../spi/driver.ts";
import { formatDuration } from "../../../util/duration.ts";
import { CommandError } from "../../errors.ts";
import type { Store } from "../../open-store.ts";
import { quoteKeys } from "../../output.ts";
import { monitorOuterLocks } from "./outer-lock-monitor.ts";
import type { OuterLock } from "./outer-locks.ts";

/** Held keys, own or joined. */
export interface RunLock {
  readonly keys: readonly string[];
  /** The highest token of the own lock, else the token of a joined one. Null on a store without fencing. */
  readonly token: bigint | null;
  /**
   * The token of each key, in the order of `keys`. They differ if keys were acquired one by one or joined. Null without
   * fencing.
   */
  readonly tokens: readonly bigint[] | null;
  /** The reference that the command can pass to `holdfast check`: a secret. */
  readonly reference: string;
  /** The reference of the own lock; null: all keys are joined. */
  readonly ownReference: string | null;
  /** Aborted with a LockLostError. */
  readonly lostSignal: AbortSignal;
  /** The length of the lease; null if the lock does not end without renewals. */
  readonly leaseMs: number | null;
  /** What is left of the lease by our clock. */
  remainingMs(): number;
  /** Why the lease is about to end, when it has not been renewed for `silentMs`. */
  describeLoss(silentMs: number): string;
  /**
   * Releases the own lock; false if it was lost. If less than `minHoldMs` have passed since the grant, the lock is
   * detached instead and stays held for the rest of that time. @throws StoreError if the store does not confirm the
   * detaching
   */
  release(minHoldMs?: number): Promise<boolean>;
}

/** A lock that the run has acquired itself. */
export function ownLock(
  locks: Locks,
  lock: Lock,
  details: { readonly reference: string; readonly fencing: boolean; readonly leaseMs: number | null },
): RunLock {
  const { reference, fencing, leaseMs } = details;
  const heldAt = performance.now();
  let failure: unknown;
  locks.on("jeopardy", ({ error }) => {
    failure = error;
  });
  return {
    reference,
    ownReference: reference,
    leaseMs,
    keys: lock.keys,
    token: fencing ? lock.token : null,
    tokens: fencing ? lock.keys.map((key) => lock.tokenOf(key)) : null,
    lostSignal: lock.signal,
    remainingMs: () => lock.remainingMs,
    describeLoss(silentMs) {
      const refusal = findRefusal(failure);
      const silence = formatDuration(silentMs);
      return refusal === null ? `store unreachable for ${silence}` : `not renewed for ${silence}: ${refusal}`;
    },
    release(minHoldMs = 0) {
      const remainingMs = heldAt + minHoldMs - performance.now();
      return remainingMs < 1 || lock.signal.aborted ? lock.release() : detachFor(lock, remainingMs);
    },
  };
}

/** A lock of which outer runs hold keys, together with the own lock on the others if there is one. */
export function joinedLock(
  ownLock: RunLock | null,
  outerLocks: readonly [OuterLock, ...OuterLock[]],
  driver: Driver,
): RunLock {
  const tokens = new Map(outerLocks.map(({ key, token }) => [key, token]));
  for (const [index, key] of (ownLock?.keys ?? []).entries()) tokens.set(key, ownLock?.tokens?.[index] ?? 0n);
  const keys = [...tokens.keys()].sort();
  const lostController = new AbortController();
  ownLock?.lostSignal.addEventListener("abort", () => lostController.abort(ownLock.lostSignal.reason), { once: true });
  const outerMonitor = monitorOuterLocks(driver, outerLocks, (key, reason) =>
    lostController.abort(new LockLostError("the outer run has ended", reason, { keys: [key] })),
  );
  const [firstOuter] = outerLocks;
  const leases = [ownLock?.leaseMs ?? null, ...outerLocks.map(({ leaseMs }) => leaseMs)].filter((ms) => ms !== null);
  return {
    keys,
    token: ownLock === null ? firstOuter.token : ownLock.token,
    tokens: ownLock?.tokens === null ? null : keys.map((key) => tokens.get(key) as bigint),
    reference: ownLock?.reference ?? firstOuter.reference,
    ownReference: ownLock?.reference ?? null,
    lostSignal: lostController.signal,
    leaseMs: leases.length === 0 ? null : Math.min(...leases),
    remainingMs: () => Math.min(ownLock?.remainingMs() ?? Number.POSITIVE_INFINITY, outerMonitor.remainingMs()),
    describeLoss: () => "the lease ends and was not renewed",
    async release() {
      outerMonitor.stop();
      const wasHeld = await (ownLock?.release() ?? true);
      return wasHeld && !lostController.signal.aborted;
    },
  };
}

/** Checks that the store can keep a lock after this process has ended. @throws CommandError usage */
export function checkCanOutlive({ traits, name }: Store): void {
  const { lease, durability } = traits;
  if (lease.claim && durability !== "process") return;
  const problem = lease.claim ? "ends with `holdfast run`" : "keeps a lock only as long as its client's session";
  throw new CommandError(
    "usage",
    `--hold-at-least needs a store that keeps leases: ${name} ${problem}; nothing was run`,
  );
}

/** Rejects keys that an outer run holds: that run decides when they are released. @throws CommandError usage */
export function checkAllOwn(outerKeys: readonly string[]): void {
  if (outerKeys.length === 0) return;
  throw new CommandError(
    "usage",
    `--hold-at-least needs a lock of its own, but an outer run holds ${quoteKeys(outerKeys)}; nothing was run`,
  );
}

/** What the store said if it refuses this client, for example since its credential was removed; null: it has not. */
function findRefusal(failure: unknown): string | null {
  for (let cause = failure; cause instanceof Error; cause = cause.cause) {
    // a lock server ends the connections of a removed credential with AUTH
    if (isFatalError(cause) || (cause as { readonly code?: unknown }).code === "AUTH") return cause.message;
  }
  return null;
}

/**
 * Detaches the lock, so that the store keeps it for `ms`. False if it was lost before.
 * @throws StoreError if the store did not confirm it: the lock may be free already, or end with its lease
 */
async function detachFor(lock: Lock, ms: number): Promise<boolean> {
  try {
    await lock.detach({ ttl: Math.ceil(ms) });
    return true;
  } catch (error) {
    if ((error as { readonly code?: unknown }).code === "LOCK_LOST") return false;
    throw error;
  }
}
