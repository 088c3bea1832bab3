/** Clients of the library in a scene, each over a line that the test can disturb. */

import assert from "node:assert/strict";
import type { Lock } from "../../client/lock.ts";
import type { Lockable } from "../../client/lockable.ts";
import type { Locks } from "../../client/locks.ts";
import { createLocks } from "../../client/locks.ts";
import type { LocksOptions } from "../../client/options.ts";
import type { Driver } from "../../spi/driver.ts";
import type { ChaosDriver, ChaosOptions } from "../chaos.ts";
import { chaos } from "../chaos.ts";
import type { Scene } from "../scene.ts";

/** A client and its line to the store. */
export interface Player {
  readonly locks: Locks;
  readonly line: ChaosDriver;
}

/** Another client of the store. Closed when the test is over; without chaos options its line does what the test orders. */
export async function player(scene: Scene, options: LocksOptions = {}, disturbed: ChaosOptions = {}): Promise<Player> {
  const line = chaos(await scene.driver(), { inspect: () => scene.inspect(), ...disturbed });
  // where a driver is wrong a test fails; it does not hang
  const locks = createLocks(line, { wait: scene.ms(5_000), ...options });
  scene.afterwards(() => {
    line.heal();
    return locks.close();
  });
  return { locks, line };
}

/** Waits until the store lists no claim, as seen by a client that has nothing to do with it. */
export async function empty(scene: Scene): Promise<void> {
  const { driver } = await scene.client();
  await scene.until("an empty store", async () => (await driver.list({ prefix: "" }, 5)).length === 0);
  await driver.close();
}

/** Waits until so many claims stand in the store, as a client sees that has nothing to do with them: one of its own, or this. */
export async function placed(scene: Scene, count: number, by?: Driver): Promise<void> {
  const driver = by ?? (await scene.client()).driver;
  await scene.until(
    `${count} claims in the store`,
    async () => (await driver.list({ prefix: "" }, 100)).length === count,
  );
  if (by === undefined) await driver.close();
}

/** Waits until the lock is granted, and gives it back: somebody else can have it now. */
export async function passes(lockable: Lockable, scene: Scene): Promise<void> {
  const lock = await lockable.acquire({ wait: scene.ms(5_000) });
  assert.equal(await lock.release(), true);
}

/** A holder, released when the test says so. */
export async function holding(locks: Locks, key: string): Promise<Lock> {
  return locks.acquire(key, { label: "the holder" });
}

/** A promise to be awaited later: should the test fail before, nobody hears of its rejection. */
export function pending<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => undefined);
  return promise;
}

/** An error of ours by its code: two copies of the package may meet in a process. */
export function coded(code: string): (error: unknown) => boolean {
  return (error) => {
    assert.equal((error as { code?: unknown }).code, code, String(error));
    return true;
  };
}

/** Settled how, if at all, by now? */
export async function stateOf(promise: Promise<unknown>): Promise<"pending" | "fulfilled" | "rejected"> {
  return Promise.race([
    promise.then(
      () => "fulfilled" as const,
      () => "rejected" as const,
    ),
    new Promise<"pending">((resolve) => setImmediate(() => resolve("pending"))),
  ]);
}
