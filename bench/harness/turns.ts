/** What callers do to one lock a certain number of times. */

import { setTimeout as delay } from "node:timers/promises";
import type { Contestant } from "./workload.ts";

/** Milliseconds until each of the callers has locked and unlocked so many times. @param keys the callers go round these */
export async function turns(contestant: Contestant, callers: number, times: number, keys = 1): Promise<number> {
  const began = performance.now();
  async function caller(index: number): Promise<void> {
    for (let time = 0; time < times; time++) {
      const held = await contestant.acquire(`bench:turns:${(index + time * callers) % keys}`);
      await contestant.release(held);
    }
  }
  await Promise.all(Array.from({ length: callers }, (_, index) => caller(index)));
  return performance.now() - began;
}

/** A turn under the lock, in microseconds of the machine's monotonic clock. */
export interface Turn {
  readonly granted: number;
  readonly released: number;
}

/** Holds for a millisecond, lets go, asks again at once: so many times. */
export async function paced(contestant: Contestant, times: number, key: string): Promise<Turn[]> {
  const all: Turn[] = [];
  for (let time = 0; time < times; time++) {
    const held = await contestant.acquire(key);
    const granted = micros();
    await delay(1);
    const released = micros();
    const done = contestant.release(held);
    all.push({ granted, released });
    await done;
  }
  return all;
}

function micros(): number {
  return Number(process.hrtime.bigint()) / 1_000;
}

/** Takes that many keys, a thousand at a time, and keeps them. */
export async function hold(contestant: Contestant, from: number, count: number): Promise<void> {
  for (let at = from; at < from + count; at += 1_000) {
    const some = Array.from({ length: Math.min(1_000, from + count - at) }, (_, n) =>
      contestant.acquire(`held:${at + n}`),
    );
    await Promise.all(some);
  }
}
