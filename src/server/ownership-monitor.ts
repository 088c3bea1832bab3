/**
 * Watches the names that make a server unique: the lock file of its state and the socket files by which clients find
 * it. If such a path no longer leads to the same file, another server can be started beside this one, so this one must
 * stop granting.
 */

import { statSync } from "node:fs";
import type { Clock } from "../util/clock.ts";

const CHECK_INTERVAL_MS = 1_000;
/** One failed check may be a moment of a repair by an operator; two in a row are not. */
const MAX_MISSES = 2;

/** Why the server has lost a path; null: it has not. */
export type OwnershipCheck = () => string | null;

export interface OwnershipMonitor {
  /** Settles with the reason after a path was missing in two checks in a row. */
  readonly lost: Promise<string>;
  close(): void;
}

/** Checks every second. Does not keep the process alive. */
export function monitorOwnership(clock: Clock, check: OwnershipCheck): OwnershipMonitor {
  let report: (reason: string) => void;
  const lost = new Promise<string>((resolve) => {
    report = resolve;
  });
  let misses = 0;
  const timer = clock.timer(() => {
    const reason = check();
    misses = reason === null ? 0 : misses + 1;
    if (reason !== null && misses >= MAX_MISSES) return report(reason);
    timer.set(clock.now() + CHECK_INTERVAL_MS);
  });
  timer.set(clock.now() + CHECK_INTERVAL_MS);
  return { lost, close: () => timer.stop() };
}

/**
 * Creates a check that the path still leads to the same file as now. The file must stay in use (a listening socket, an
 * open file): otherwise the file system may give its inode number to another file.
 */
export function createPathCheck(path: string): OwnershipCheck {
  const initial = statSync(path);
  return () => {
    const current = statSync(path, { throwIfNoEntry: false });
    return current?.ino === initial.ino && current.dev === initial.dev ? null : `${path} was removed or replaced`;
  };
}
