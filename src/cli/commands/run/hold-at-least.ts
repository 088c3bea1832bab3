/** `--hold-at-least`: a lock that outlives a short command, so that a job that several machines start runs once per tick. */

import type { Lock } from "../../../client/lock.ts";
import { CommandError } from "../../errors.ts";
import type { Store } from "../../open-store.ts";
import { quoteKeys } from "../../output.ts";

/** Can the store keep a lock without us? @throws CommandError usage */
export function checkCanOutlive({ driver, name }: Store): void {
  const { lease, survives } = driver.traits;
  if (lease.claim && survives !== "process") return;
  const problem = lease.claim ? "ends with `holdfast run`" : "keeps a lock only as long as its client's session lives";
  throw new CommandError(
    "usage",
    `--hold-at-least needs a store that keeps leases: ${name} ${problem}; nothing was run`,
  );
}

/** A key that the run around this one holds is given back by that one. @throws CommandError usage */
export function checkNotInherited(inheritedKeys: readonly string[]): void {
  if (inheritedKeys.length === 0) return;
  throw new CommandError(
    "usage",
    `--hold-at-least needs locks of its own, and ${quoteKeys(inheritedKeys)} is held by the run around this one; nothing was run`,
  );
}

/**
 * Leaves the lock held for so long, without us; false if it had been lost.
 * @throws DriverError if the store did not confirm it: the lock may be free already, or end with its lease
 */
export async function detachFor(lock: Lock, ms: number): Promise<boolean> {
  try {
    await lock.detach({ ttl: Math.ceil(ms) });
    return true;
  } catch (error) {
    if ((error as { readonly code?: unknown }).code === "LOCK_LOST") return false;
    throw error;
  }
}
