/**
 * What makes a server the only one of its kind: the lock on its state, and the sockets that its clients find it by. Each
 * is a name in a folder. Once it names something else, or nothing, another server can be started beside this one, which
 * must not go on granting.
 */

import { statSync } from "node:fs";
import type { Clock } from "../util/clock.ts";

const CHECK_INTERVAL_MS = 1_000;
/** A look may fall into a moment of somebody's repair; twice in a row it does not. */
const MAX_MISSES = 2;

/** Why a server is not what it was any more; null: it is. */
export type OwnershipCheck = () => string | null;

/** Calls `onLost` once, when a place has been lost for two looks in a row. Keeps no process alive. */
export function monitorOwnership(
  clock: Clock,
  check: OwnershipCheck,
  onLost: (reason: string) => void,
): { close(): void } {
  let misses = 0;
  const timer = clock.timer(() => {
    const reason = check();
    misses = reason === null ? 0 : misses + 1;
    if (reason !== null && misses >= MAX_MISSES) return onLost(reason);
    timer.set(clock.now() + CHECK_INTERVAL_MS);
  });
  timer.set(clock.now() + CHECK_INTERVAL_MS);
  return { close: () => timer.stop() };
}

/**
 * Looks whether the path still leads to the file that it leads to now. The file must stay in use (a socket that is listened
 * on, an open file): else its number in the file system may be given to another one.
 */
export function createPathCheck(path: string): OwnershipCheck {
  const initial = statSync(path);
  return () => {
    const current = statSync(path, { throwIfNoEntry: false });
    return current?.ino === initial.ino && current.dev === initial.dev ? null : `${path} was removed or replaced`;
  };
}
