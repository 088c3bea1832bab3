/** `--hold-at-least`: the lock outlives a short command, so that a job that several machines start runs once per tick. */

import type { Lock } from "../../../client/lock.ts";
import { CommandError } from "../../errors.ts";
import type { Store } from "../../open-store.ts";
import { quoteKeys } from "../../output.ts";

/** Checks that the store can keep a lock after this process has ended. @throws CommandError usage */
export function checkCanOutlive({ driver, name }: Store): void {
  const { lease, survives } = driver.traits;
  if (lease.claim && survives !== "process") return;
  const problem = lease.claim ? "ends with `holdfast run`" : "keeps a lock only as long as its client's session";
  throw new CommandError(
    "usage",
    `--hold-at-least needs a store that keeps leases: ${name} ${problem}; nothing was run`,
  );
}

/** Rejects keys that an outer run holds: that run decides when they are released. @throws CommandError usage */
export function checkNotInherited(inheritedKeys: readonly string[]): void {
  if (inheritedKeys.length === 0) return;
  throw new CommandError(
    "usage",
    `--hold-at-least needs a lock of its own, but ${quoteKeys(inheritedKeys)} is held by an outer run; nothing was run`,
  );
}

/**
 * Detaches the lock, so that the store keeps it for `ms`. False if it was lost before.
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
