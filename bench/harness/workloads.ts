/** What callers do to one lock a certain number of times. */

import { setTimeout as delay } from "node:timers/promises";
import type { LockImplementation } from "./closed-loop.ts";

/**
 * Milliseconds until each of the callers has locked and unlocked so many times. @param keys the callers go round these
 */
export async function runTurns(
  implementation: LockImplementation,
  callers: number,
  times: number,
  keys = 1,
): Promise<number> {
  const startedAt = performance.now();
  async function caller(index: number): Promise<void> {
    for (let time = 0; time < times; time++) {
      const held = await implementation.acquire(`bench:turns:${(index + time * callers) % keys}`);
      await implementation.release(held);
    }
  }
  await Promise.all(Array.from({ length: callers }, (_, index) => caller(index)));
  return performance.now() - startedAt;
}

/** A turn under the lock, in microseconds of the machine's monotonic clock. */
export interface Turn {
  readonly granted: number;
  readonly releasedAt: number;
}

/** Holds for a millisecond, lets go, asks again at once: so many times. */
export async function runPacedTurns(implementation: LockImplementation, times: number, key: string): Promise<Turn[]> {
  const turns: Turn[] = [];
  for (let time = 0; time < times; time++) {
    const held = await implementation.acquire(key);
    const granted = nowMicros();
    await delay(1);
    const releasedAt = nowMicros();
    const release = implementation.release(held);
    turns.push({ granted, releasedAt });
    await release;
  }
  return turns;
}

function nowMicros(): number {
  return Number(process.hrtime.bigint()) / 1_000;
}

/** Takes that many keys, a thousand at a time, and keeps them. */
export async function holdKeys(implementation: LockImplementation, from: number, count: number): Promise<void> {
  for (let index = from; index < from + count; index += 1_000) {
    const batch = Array.from({ length: Math.min(1_000, from + count - index) }, (_, n) =>
      implementation.acquire(`held:${index + n}`),
    );
    await Promise.all(batch);
  }
}
