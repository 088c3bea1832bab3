/**
 * Handles that the program can no longer release. The garbage collector reports them: the client warns of their locks
 * and keeps them, since `await acquire(key); await work()` is no reason to lose a lock.
 *
 * A handle is watched from the first renewal of its lock on. A lock that is released before costs nothing, and one that
 * is never renewed ends by itself.
 */

import { formatKeys } from "../errors.ts";
import { formatDuration } from "../util/duration.ts";
import type { LocalHold } from "./local-hold.ts";
import { logWarning } from "./logger.ts";

/** What a warning says; it must not lead to the handle. */
interface WatchedLock {
  readonly keys: readonly string[];
  readonly localHolds: readonly [LocalHold, ...LocalHold[]];
}

const watched = new FinalizationRegistry<WatchedLock>(warn);

export function watchHandle(handle: object, lock: WatchedLock): void {
  watched.register(handle, lock, handle);
}

export function unwatchHandle(handle: object): void {
  watched.unregister(handle);
}

function warn({ keys, localHolds }: WatchedLock): void {
  if (!localHolds.every(({ isOpen, lostReason }) => isOpen && lostReason === null)) return;
  const [{ queue, grantedAt, settings }] = localHolds;
  const { engine, settings: clientSettings } = queue.context;
  const heldMs = engine.clock.now() - grantedAt;
  const at = new Date(Date.now() - heldMs).toISOString();
  const limit = settings.maxHoldMs === Number.POSITIVE_INFINITY ? "this process ends" : "maxHold";
  const warning = `a lock on ${formatKeys(keys)} was acquired at ${at} (label ${JSON.stringify(settings.label)}) and never released: its handle is garbage. It stays held until ${limit}, ${formatDuration(heldMs)} by now: call release(), or use using() or "await using"`;
  const { logger } = clientSettings;
  if (logger === undefined) process.emitWarning(warning, "HoldfastWarning");
  else logWarning(logger, warning);
}
