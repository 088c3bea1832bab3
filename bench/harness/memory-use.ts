/** What stays on the heap of a client after it has been used. Needs --expose-gc. */

import { setTimeout as delay } from "node:timers/promises";
import type { LockImplementation } from "./closed-loop.ts";

/** Bytes of heap that are left over per key after each key has been locked once, eight at a time. */
export async function measureIdleKeys(implementation: LockImplementation, keys: number): Promise<number> {
  await lockEach(implementation, 0, 10_000, (index) => `warm:${index}`);
  const before = await heapBytes();
  await lockEach(implementation, 0, keys, (index) => `idle:${index}`);
  return ((await heapBytes()) - before) / keys;
}

/** Bytes by which the heap grew per cycle over so many cycles on one key, after a tenth as many to warm up. */
export async function measureCycles(implementation: LockImplementation, cycles: number): Promise<number> {
  await lockEach(implementation, 0, cycles / 10, () => "cycle");
  const before = await heapBytes();
  await lockEach(implementation, 0, cycles, () => "cycle");
  return ((await heapBytes()) - before) / cycles;
}

async function lockEach(
  implementation: LockImplementation,
  from: number,
  to: number,
  key: (index: number) => string,
): Promise<void> {
  let next = from;
  async function caller(): Promise<void> {
    while (next < to) {
      const held = await implementation.acquire(key(next++));
      await implementation.release(held);
    }
  }
  await Promise.all(Array.from({ length: 8 }, caller));
}

/** After everything that waits for its turn has had it, and garbage is gone. */
async function heapBytes(): Promise<number> {
  const { gc } = globalThis;
  if (gc === undefined) throw new Error("needs --expose-gc");
  for (let times = 0; times < 3; times++) {
    await delay(20);
    gc();
  }
  return process.memoryUsage().heapUsed;
}
