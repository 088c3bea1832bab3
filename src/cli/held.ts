/** What a run holds while its command works: locks of its own, or ones it joined. */

import type { Lock } from "../client/lock.ts";
import { LockLostError } from "../errors.ts";
import type { Driver } from "../spi/driver.ts";
import type { Joined } from "./nested.ts";
import { watchOuter } from "./outer.ts";

/** Held keys, however we came to them. */
export interface Held {
  readonly keys: readonly string[];
  /** Null on a store without fencing. */
  readonly token: bigint | null;
  /** What `holdfast check` of the child asks about: a secret. */
  readonly reference: string;
  /** Aborted with a LockLostError. */
  readonly lost: AbortSignal;
  /** The length of the lease; null where silence does not end it. */
  readonly leaseMs: number | null;
  /** What is left of the lease by our clock. */
  remainingMs(): number;
  /** Gives back what is ours to give; false if it was lost. */
  release(): Promise<boolean>;
}

/** A lock of our own. */
export function ownHold(
  lock: Lock,
  details: { readonly reference: string; readonly token: bigint | null; readonly leaseMs: number | null },
): Held {
  return {
    ...details,
    keys: lock.keys,
    lost: lock.signal,
    remainingMs: () => lock.remainingMs,
    release: () => lock.release(),
  };
}

/** Keys that outer runs hold, beside our own lock if there is one. */
export function joinedHold(own: Held | null, joined: readonly [Joined, ...Joined[]], driver: Driver): Held {
  const keys = [...(own?.keys ?? []), ...joined.map(({ key }) => key)].sort();
  const lost = new AbortController();
  own?.lost.addEventListener("abort", () => lost.abort(own.lost.reason), { once: true });
  const unwatch = watchOuter(driver, joined, (key) =>
    lost.abort(new LockLostError("the run around this one ended", "released", { keys: [key] })),
  );
  const [first] = joined;
  return {
    keys,
    token: own?.token ?? first.token,
    reference: own?.reference ?? first.reference,
    lost: lost.signal,
    leaseMs: own?.leaseMs ?? null,
    remainingMs: () => own?.remainingMs() ?? Number.POSITIVE_INFINITY,
    async release() {
      unwatch();
      const kept = await (own?.release() ?? true);
      return kept && !lost.signal.aborted;
    },
  };
}
