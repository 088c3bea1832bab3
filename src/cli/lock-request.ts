/** The locks that a command requests. */

import type { Lock } from "../client/lock.ts";
import type { Lockable, Locks } from "../client/locks.ts";
import type { AcquireOptions } from "../client/options.ts";
import type { LockSpec } from "../spi/driver.ts";
import { ALL_PERMITS, MAX_LOCKS } from "../spi/driver.ts";
import { validateKey } from "../util/keys.ts";
import { CommandError } from "./errors.ts";

/** Exclusive, shared with other readers, or `permits` of `limit` permits. */
export type RequestedMode = "exclusive" | "shared" | { readonly permits: number; readonly limit: number };

/** Distinct keys and the mode for all of them. */
export interface RequestedLocks {
  readonly keys: readonly [string, ...string[]];
  readonly mode: RequestedMode;
}

/**
 * Checks the keys and the mode given on the command line.
 * @throws CommandError usage
 */
export function parseLockRequest(
  keys: readonly string[],
  shared: boolean,
  permits: string | undefined,
): RequestedLocks {
  const [first, ...otherKeys] = new Set(keys.map((key) => validateKey(key)));
  if (first === undefined)
    throw new CommandError("usage", "no key given; for example: holdfast run nightly-report -- ./report.sh");
  if (otherKeys.length >= MAX_LOCKS)
    throw new CommandError("usage", `too many keys: at most ${MAX_LOCKS}, not ${otherKeys.length + 1}`);
  if (permits === undefined) return { keys: [first, ...otherKeys], mode: shared ? "shared" : "exclusive" };
  if (shared) throw new CommandError("usage", "--shared and --permits cannot be combined");
  const mode = parsePermits(permits);
  if (otherKeys.length > 0 && mode.permits > 1) {
    throw new CommandError("usage", "with several keys --permits must be 1/m: one permit of each key");
  }
  return { keys: [first, ...otherKeys], mode };
}

function parsePermits(text: string): { readonly permits: number; readonly limit: number } {
  const match = /^(\d{1,10})\/(\d{1,10})$/.exec(text);
  const [permits, limit] = [Number(match?.[1]), Number(match?.[2])];
  if (!(permits >= 1 && limit >= permits && limit < ALL_PERMITS)) {
    throw new CommandError("usage", `--permits must be n/m with 1 <= n <= m, such as 1/4, not ${JSON.stringify(text)}`);
  }
  return { permits, limit };
}

/** The lock spec of one key. */
export function toLockSpec(key: string, mode: RequestedMode): LockSpec {
  if (mode === "exclusive") return { key, permits: ALL_PERMITS, limit: ALL_PERMITS };
  return mode === "shared" ? { key, permits: 1, limit: ALL_PERMITS } : { key, ...mode };
}

/** Acquires the keys. With `wait: 0` it tries once, and returns null if a key is busy. */
export async function acquire(
  locks: Locks,
  { keys, mode }: RequestedLocks,
  options: AcquireOptions,
): Promise<Lock | null> {
  const { wait, ...otherOptions } = options;
  const permitOptions = typeof mode === "object" && keys.length === 1 ? { permits: mode.permits } : {};
  const target: Lockable<{ readonly permits?: number }> =
    keys.length === 1
      ? toLockable(locks, keys[0], mode)
      : locks.all(...keys.map((key) => toLockable(locks, key, mode)));
  return wait === 0
    ? target.tryAcquire({ ...otherOptions, ...permitOptions })
    : target.acquire({ ...options, ...permitOptions });
}

function toLockable(locks: Locks, key: string, mode: RequestedMode): Lockable<{ readonly permits?: number }> {
  if (mode === "exclusive") return locks.mutex(key);
  return mode === "shared" ? locks.rw(key).read : locks.semaphore(key, mode.limit);
}
