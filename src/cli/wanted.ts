/** What a run wants to lock, and as what it appears to others. */

import { hostname, userInfo } from "node:os";
import { basename } from "node:path";
import type { Lock } from "../client/lock.ts";
import type { Lockable } from "../client/lockable.ts";
import type { Locks } from "../client/locks.ts";
import type { AcquireOptions } from "../client/options.ts";
import { checkedKey, checkedLabel } from "../keys.ts";
import type { Hold } from "../spi/driver.ts";
import { ALL_PERMITS, MAX_HOLDS } from "../spi/driver.ts";
import { CommandError } from "./failure.ts";

/** How the keys are wanted: alone, with other readers, or so many of so many permits. */
export type Mode = "exclusive" | "shared" | { readonly permits: number; readonly limit: number };

/** Keys, each once, and how they are wanted. */
export interface Wanted {
  readonly keys: readonly [string, ...string[]];
  readonly mode: Mode;
}

/**
 * Checks the keys and the mode given on the command line.
 * @throws CommandError usage
 */
export function wantedOf(keys: readonly string[], shared: boolean, permits: string | undefined): Wanted {
  const [first, ...rest] = new Set(keys.map((key) => checkedKey(key)));
  if (first === undefined)
    throw new CommandError("usage", "which key? For example: holdfast run nightly -- ./report.sh");
  if (rest.length >= MAX_HOLDS) throw new CommandError("usage", `at most ${MAX_HOLDS} keys, not ${rest.length + 1}`);
  if (permits === undefined) return { keys: [first, ...rest], mode: shared ? "shared" : "exclusive" };
  if (shared) throw new CommandError("usage", "--shared and --permits exclude each other");
  const mode = permitsOf(permits);
  if (rest.length > 0 && mode.permits > 1) {
    throw new CommandError("usage", "several keys at once take one permit each: --permits 1/m");
  }
  return { keys: [first, ...rest], mode };
}

function permitsOf(text: string): { readonly permits: number; readonly limit: number } {
  const match = /^(\d{1,10})\/(\d{1,10})$/.exec(text);
  const [permits, limit] = [Number(match?.[1]), Number(match?.[2])];
  if (!(permits >= 1 && limit >= permits && limit < ALL_PERMITS)) {
    throw new CommandError("usage", `--permits takes n/m with 1 <= n <= m, such as 1/4, not ${JSON.stringify(text)}`);
  }
  return { permits, limit };
}

/** One of the keys as the store will be asked for it. */
export function holdOf(key: string, mode: Mode): Hold {
  if (mode === "exclusive") return { key, permits: ALL_PERMITS, limit: ALL_PERMITS };
  return mode === "shared" ? { key, permits: 1, limit: ALL_PERMITS } : { key, ...mode };
}

/** Waits for these keys, or with `wait: 0` asks once and gives null when they are busy. */
export async function acquire(locks: Locks, { keys, mode }: Wanted, options: AcquireOptions): Promise<Lock | null> {
  const { wait, ...others } = options;
  const extra = typeof mode === "object" && keys.length === 1 ? { permits: mode.permits } : {};
  const target: Lockable<{ readonly permits?: number }> =
    keys.length === 1
      ? lockableOf(locks, keys[0], mode)
      : locks.all(...keys.map((key) => lockableOf(locks, key, mode)));
  return wait === 0 ? target.tryAcquire({ ...others, ...extra }) : target.acquire({ ...options, ...extra });
}

function lockableOf(locks: Locks, key: string, mode: Mode): Lockable<{ readonly permits?: number }> {
  if (mode === "exclusive") return locks.mutex(key);
  return mode === "shared" ? locks.rw(key).read : locks.semaphore(key, mode.limit);
}

/** `user@host pid 4121 (rsync)`: the program's name, never its arguments, which may hold secrets. */
export function labelFor(program: string, pid: number = process.pid): string {
  let user: string;
  try {
    user = userInfo().username;
  } catch {
    // an id that the password database does not know
    user = `uid ${process.getuid?.() ?? "?"}`;
  }
  return checkedLabel(`${user}@${hostname()} pid ${pid} (${basename(program)})`);
}
