/** Many who want one lock, again and again, in several clients: what a fault must not break. */

import type { Lock, Locks } from "../../src/index.ts";
import { until } from "./until.ts";

export interface ContentionLoad extends AsyncDisposable {
  /** Times that two who both believed to hold were inside at once. */
  readonly overlaps: number;
  /** Locks that were lost while held. */
  readonly lostLocks: number;
  /** Waits for grants after now. */
  waitForProgress(withinMs?: number): Promise<void>;
  /** Waits until each of those who wait now has been served once more: nobody was forgotten. */
  waitUntilAllServed(withinMs?: number): Promise<void>;
}

/** @param each callers of every client, all the time waiting or holding for a moment */
export function startContention(clients: readonly Locks[], key: string, each: number): ContentionLoad {
  const ending = new AbortController();
  const turns: number[] = [];
  const inside = new Set<Lock>();
  let overlaps = 0;
  let lost = 0;
  let grants = 0;
  const work = async (locks: Locks, callerIndex: number): Promise<void> => {
    while (!ending.signal.aborted) {
      const lock = await locks.acquire(key, { signal: ending.signal });
      grants++;
      turns[callerIndex] = (turns[callerIndex] ?? 0) + 1;
      // who has lost it, and knows, is no longer inside
      for (const otherLock of inside) if (otherLock.remainingMs > 0 && lock.remainingMs > 0) overlaps++;
      inside.add(lock);
      await new Promise((resolve) => setTimeout(resolve, 2));
      if (lock.signal.aborted) lost++;
      inside.delete(lock);
      await lock.release();
    }
  };
  const callers = clients.flatMap((locks, at) => Array.from({ length: each }, (_, of) => work(locks, at * each + of)));
  for (const one of callers) one.catch(() => undefined);
  return {
    get overlaps() {
      return overlaps;
    },
    get lostLocks() {
      return lost;
    },
    async waitForProgress(withinMs = 15_000) {
      const before = grants;
      await until(() => grants > before + 10, { within: withinMs, what: "further grants" });
    },
    async waitUntilAllServed(withinMs = 15_000) {
      const before = callers.map((_, callerIndex) => turns[callerIndex] ?? 0);
      await until(() => before.every((count, callerIndex) => (turns[callerIndex] ?? 0) > count), {
        within: withinMs,
        what: "a turn for everybody",
      });
    },
    async [Symbol.asyncDispose]() {
      ending.abort();
      await Promise.allSettled(callers);
    },
  };
}
