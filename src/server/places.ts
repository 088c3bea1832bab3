/**
 * What makes a server the only one of its kind: the lock on its state, and the sockets that its clients find it by. Each
 * is a name in a folder. Once it names something else, or nothing, another server can be started beside this one, which
 * must not go on granting.
 */

import { statSync } from "node:fs";
import type { Clock } from "../clock.ts";

const EVERY_MS = 1_000;
/** A look may fall into a moment of somebody's repair; twice in a row it does not. */
const MISSES = 2;

/** Why a server is not what it was any more; null: it is. */
export type Look = () => string | null;

/** Calls `lost` once, when a place has been lost for two looks in a row. Keeps no process alive. */
export function watchPlaces(clock: Clock, look: Look, lost: (why: string) => void): { close(): void } {
  let misses = 0;
  const timer = clock.timer(() => {
    const why = look();
    misses = why === null ? 0 : misses + 1;
    if (why !== null && misses >= MISSES) return lost(why);
    timer.set(clock.now() + EVERY_MS);
  });
  timer.set(clock.now() + EVERY_MS);
  return { close: () => timer.stop() };
}

/**
 * Looks whether the path still leads to the file that it leads to now. The file must stay in use (a socket that is listened
 * on, an open file): else its number in the file system may be given to another one.
 */
export function stillThere(path: string): Look {
  const first = statSync(path);
  return () => {
    const now = statSync(path, { throwIfNoEntry: false });
    return now?.ino === first.ino && now.dev === first.dev ? null : `${path} was removed or replaced`;
  };
}
