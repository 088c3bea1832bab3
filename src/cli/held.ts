/** What a run holds while its command works: locks of its own, or ones it joined. */

import type { Lock } from "../client/lock.ts";
import { shownDuration } from "../duration.ts";
import { LockLostError } from "../errors.ts";
import type { Driver } from "../spi/driver.ts";
import { leaveHeld } from "./hold-at-least.ts";
import type { Joined } from "./nested.ts";
import { watchOuter } from "./outer.ts";

/** Held keys, however we came to them. */
export interface Held {
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
  readonly lost: AbortSignal;
  /** The length of the lease; null where silence does not end it. */
  readonly leaseMs: number | null;
  /** What is left of the lease by our clock. */
  remainingMs(): number;
  /** Why too little is left, when we have not renewed it for so long. */
  whyLosing(silentMs: number): string;
  /**
   * Gives back what is ours to give; false if it was lost. Before `atLeastMs` have passed since the grant it stays held
   * without us for what is left of them. @throws DriverError then, if the store did not confirm that
   */
  release(atLeastMs?: number): Promise<boolean>;
}

/** A lock of our own. */
export function ownHold(
  lock: Lock,
  details: { readonly reference: string; readonly fencing: boolean; readonly leaseMs: number | null },
): Held {
  const { reference, fencing, leaseMs } = details;
  const heldAt = performance.now();
  return {
    reference,
    ownReference: reference,
    leaseMs,
    keys: lock.keys,
    token: fencing ? lock.token : null,
    tokens: fencing ? lock.keys.map((key) => lock.tokenOf(key)) : null,
    lost: lock.signal,
    remainingMs: () => lock.remainingMs,
    whyLosing: (silentMs) => `store unreachable for ${shownDuration(silentMs)}`,
    release(atLeastMs = 0) {
      const leftMs = heldAt + atLeastMs - performance.now();
      return leftMs < 1 || lock.signal.aborted ? lock.release() : leaveHeld(lock, leftMs);
    },
  };
}

/** Keys that outer runs hold, beside our own lock if there is one. */
export function joinedHold(own: Held | null, joined: readonly [Joined, ...Joined[]], driver: Driver): Held {
  const tokens = new Map(joined.map(({ key, token }) => [key, token]));
  for (const [at, key] of (own?.keys ?? []).entries()) tokens.set(key, own?.tokens?.[at] ?? 0n);
  const keys = [...tokens.keys()].sort();
  const lost = new AbortController();
  own?.lost.addEventListener("abort", () => lost.abort(own.lost.reason), { once: true });
  const outer = watchOuter(driver, joined, (key, reason) =>
    lost.abort(new LockLostError("the run around this one ended", reason, { keys: [key] })),
  );
  const [first] = joined;
  const leases = [own?.leaseMs ?? null, ...joined.map(({ leaseMs }) => leaseMs)].filter((ms) => ms !== null);
  return {
    keys,
    token: own === null ? first.token : own.token,
    tokens: own?.tokens === null ? null : keys.map((key) => tokens.get(key) as bigint),
    reference: own?.reference ?? first.reference,
    ownReference: own?.reference ?? null,
    lost: lost.signal,
    leaseMs: leases.length === 0 ? null : Math.min(...leases),
    remainingMs: () => Math.min(own?.remainingMs() ?? Number.POSITIVE_INFINITY, outer.remainingMs()),
    whyLosing: () => "its lease ends and was not renewed",
    async release() {
      outer.stop();
      const kept = await (own?.release() ?? true);
      return kept && !lost.signal.aborted;
    },
  };
}
