/** What a run wants to lock, and as what it appears to others. */

import { hostname, userInfo } from "node:os";
import { basename } from "node:path";
import type { Lock } from "../client/lock.ts";
import type { Lockable } from "../client/lockable.ts";
import type { Locks } from "../client/locks.ts";
import type { AcquireOptions } from "../client/options.ts";
import type { LockSpec } from "../spi/driver.ts";
import { ALL_PERMITS, MAX_LOCKS } from "../spi/driver.ts";
import { cleanLabel, validateKey } from "../util/keys.ts";
import { CommandError } from "./errors.ts";

/** How the keys are wanted: alone, with other readers, or so many of so many permits. */
export type LockMode = "exclusive" | "shared" | { readonly permits: number; readonly limit: number };

/** Keys, each once, and how they are wanted. */
export interface LockRequest {
  readonly keys: readonly [string, ...string[]];
  readonly mode: LockMode;
}

/**
 * Checks the keys and the mode given on the command line.
 * @throws CommandError usage
 */
export function parseLockRequest(keys: readonly string[], shared: boolean, permits: string | undefined): LockRequest {
  const [first, ...otherKeys] = new Set(keys.map((key) => validateKey(key)));
  if (first === undefined)
    throw new CommandError("usage", "which key? For example: holdfast run nightly -- ./report.sh");
  if (otherKeys.length >= MAX_LOCKS)
    throw new CommandError("usage", `at most ${MAX_LOCKS} keys, not ${otherKeys.length + 1}`);
  if (permits === undefined) return { keys: [first, ...otherKeys], mode: shared ? "shared" : "exclusive" };
  if (shared) throw new CommandError("usage", "--shared and --permits exclude each other");
  const mode = parsePermits(permits);
  if (otherKeys.length > 0 && mode.permits > 1) {
    throw new CommandError("usage", "several keys at once take one permit each: --permits 1/m");
  }
  return { keys: [first, ...otherKeys], mode };
}

function parsePermits(text: string): { readonly permits: number; readonly limit: number } {
  const match = /^(\d{1,10})\/(\d{1,10})$/.exec(text);
  const [permits, limit] = [Number(match?.[1]), Number(match?.[2])];
  if (!(permits >= 1 && limit >= permits && limit < ALL_PERMITS)) {
    throw new CommandError("usage", `--permits takes n/m with 1 <= n <= m, such as 1/4, not ${JSON.stringify(text)}`);
  }
  return { permits, limit };
}

/** One of the keys as the store will be asked for it. */
export function toLockSpec(key: string, mode: LockMode): LockSpec {
  if (mode === "exclusive") return { key, permits: ALL_PERMITS, limit: ALL_PERMITS };
  return mode === "shared" ? { key, permits: 1, limit: ALL_PERMITS } : { key, ...mode };
}

/** Waits for these keys, or with `wait: 0` asks once and gives null when they are busy. */
export async function acquire(
  locks: Locks,
  { keys, mode }: LockRequest,
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

function toLockable(locks: Locks, key: string, mode: LockMode): Lockable<{ readonly permits?: number }> {
  if (mode === "exclusive") return locks.mutex(key);
  return mode === "shared" ? locks.rw(key).read : locks.semaphore(key, mode.limit);
}

/** `user@host pid 4121 (rsync)`: the program's name, never its arguments, which may hold secrets. */
export function createLabel(program: string, pid: number = process.pid): string {
  let user: string;
  try {
    user = userInfo().username;
  } catch {
    // an id that the password database does not know
    user = `uid ${process.getuid?.() ?? "?"}`;
  }
  return cleanLabel(`${user}@${hostname()} pid ${pid} (${basename(program)})`);
}
