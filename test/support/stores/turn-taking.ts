/** Callers of several clients that take turns on a few keys while a store is disturbed, and what must hold meanwhile. */

import { expect } from "vitest";
import type { Locks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";

const CALLERS_PER_CLIENT = 4;
const KEY_COUNT = 4;
/** Loose: the machine may be busy, and a server needs its time to start. */
const PROGRESS_MS = 30_000;

export interface TurnTaking {
  /** Runs `disturb` again and again with ten turns before each time and after the last, and judges the tables each time. */
  survive(disturb: () => Promise<unknown>, rounds: number): Promise<void>;
  /** Milliseconds for which a released key stood idle, at most, though others waited for it. */
  longestIdleMs(): number;
  /** Ends the callers. @throws AssertionError if two were inside at once, a token did not rise, or a table is wrong */
  finish(): Promise<void>;
}

/** @param inspect what is wrong with the tables; it may fail while the server cannot be reached */
export async function startTurnTaking(
  clients: readonly Locks[],
  inspect: () => Promise<readonly string[]>,
): Promise<TurnTaking> {
  // the faults are those of calls: open() reports a connection that ends while it reads the settings
  for (const locks of clients) await locks.list("");
  const inside = new Set<string>();
  const lastTokens = new Map<string, bigint>();
  const freeSince = new Map<string, number>();
  const violations: string[] = [];
  let [turns, longestIdleMs, isOn] = [0, 0, true];
  const takeTurns = async (locks: Locks, key: string): Promise<void> => {
    while (isOn) {
      const lock = await locks.acquire(key, { wait: "60s" });
      longestIdleMs = Math.max(longestIdleMs, performance.now() - (freeSince.get(key) ?? Number.POSITIVE_INFINITY));
      if (inside.has(key)) violations.push(`${key} is held twice`);
      if (lock.token <= (lastTokens.get(key) ?? 0n)) violations.push(`the token of ${key} did not rise`);
      inside.add(key);
      lastTokens.set(key, lock.token);
      turns++;
      await Promise.resolve();
      inside.delete(key);
      // unknown: the client repeats it
      const isReleased = await lock.release().catch(() => false);
      if (isReleased) freeSince.set(key, performance.now());
      else freeSince.delete(key);
    }
  };
  const callers = clients.flatMap((locks) =>
    Array.from({ length: CALLERS_PER_CLIENT }, (_, index) => takeTurns(locks, `key ${index % KEY_COUNT}`)),
  );
  for (const caller of callers) caller.catch(() => undefined);
  const proceed = async (): Promise<void> => {
    const before = turns;
    await until(() => turns > before + 10, { within: PROGRESS_MS, what: "ten turns" });
    violations.push(...(await inspect()));
  };
  return {
    async survive(disturb, rounds) {
      for (let round = 0; round < rounds; round++) {
        await proceed();
        await disturb();
      }
      await proceed();
    },
    longestIdleMs: () => longestIdleMs,
    async finish() {
      isOn = false;
      await Promise.all(callers);
      violations.push(...(await inspect()));
      expect(violations).toEqual([]);
    },
  };
}
