/** Many who want one lock, again and again, in several clients: what a fault must not break. */

import type { Lock, Locks } from "../../src/index.ts";
import { until } from "../../src/testing/until.ts";

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

/** @param callersPerClient callers of every client, all the time waiting or holding for a moment */
export function startContention(clients: readonly Locks[], key: string, callersPerClient: number): ContentionLoad {
  const controller = new AbortController();
  const turns: number[] = [];
  const insideLocks = new Set<Lock>();
  let overlaps = 0;
  let lostCount = 0;
  let grants = 0;
  const runCaller = async (locks: Locks, callerIndex: number): Promise<void> => {
    while (!controller.signal.aborted) {
      const lock = await locks.acquire(key, { signal: controller.signal });
      grants++;
      turns[callerIndex] = (turns[callerIndex] ?? 0) + 1;
      // who has lost it, and knows, is no longer inside
      for (const otherLock of insideLocks) if (otherLock.remainingMs > 0 && lock.remainingMs > 0) overlaps++;
      insideLocks.add(lock);
      await new Promise((resolve) => setTimeout(resolve, 2));
      if (lock.signal.aborted) lostCount++;
      insideLocks.delete(lock);
      await lock.release();
    }
  };
  const callers = clients.flatMap((locks, clientIndex) =>
    Array.from({ length: callersPerClient }, (_, callerIndex) =>
      runCaller(locks, clientIndex * callersPerClient + callerIndex),
    ),
  );
  for (const caller of callers) caller.catch(() => undefined);
  return {
    get overlaps() {
      return overlaps;
    },
    get lostLocks() {
      return lostCount;
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
      controller.abort();
      await Promise.allSettled(callers);
    },
  };
}
