/** Many who want one lock, again and again, in several clients: what a fault must not break. */

import type { Lock, Locks } from "../../src/index.ts";
import { until } from "./wait-for.ts";

export interface Load extends AsyncDisposable {
  /** Times that two who both believed to hold were inside at once. */
  readonly overlaps: number;
  /** Locks that were lost while held. */
  readonly lost: number;
  /** Waits for grants after now. */
  goesOn(withinMs?: number): Promise<void>;
  /** Waits until each of those who wait now has been served once more: nobody was forgotten. */
  everybodyServed(withinMs?: number): Promise<void>;
}

/** @param each callers of every client, all the time waiting or holding for a moment */
export function load(clients: readonly Locks[], key: string, each: number): Load {
  const ending = new AbortController();
  const turns: number[] = [];
  const inside = new Set<Lock>();
  let overlaps = 0;
  let lost = 0;
  let grants = 0;
  const work = async (locks: Locks, who: number): Promise<void> => {
    while (!ending.signal.aborted) {
      const lock = await locks.acquire(key, { signal: ending.signal });
      grants++;
      turns[who] = (turns[who] ?? 0) + 1;
      // who has lost it, and knows, is no longer inside
      for (const other of inside) if (other.remainingMs > 0 && lock.remainingMs > 0) overlaps++;
      inside.add(lock);
      await new Promise((resolve) => setTimeout(resolve, 2));
      if (lock.signal.aborted) lost++;
      inside.delete(lock);
      await lock.release();
    }
  };
  const all = clients.flatMap((locks, at) => Array.from({ length: each }, (_, of) => work(locks, at * each + of)));
  for (const one of all) one.catch(() => undefined);
  return {
    get overlaps() {
      return overlaps;
    },
    get lost() {
      return lost;
    },
    async goesOn(withinMs = 15_000) {
      const before = grants;
      await until(() => grants > before + 10, { within: withinMs, what: "further grants" });
    },
    async everybodyServed(withinMs = 15_000) {
      const before = all.map((_, who) => turns[who] ?? 0);
      await until(() => before.every((count, who) => (turns[who] ?? 0) > count), {
        within: withinMs,
        what: "a turn for everybody",
      });
    },
    async [Symbol.asyncDispose]() {
      ending.abort();
      await Promise.allSettled(all);
    },
  };
}
