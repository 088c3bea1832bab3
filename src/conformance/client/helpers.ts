/** Clients of the library in a scene, each over a line that the test can disturb. */

import assert from "node:assert/strict";
import type { Lock } from "../../client/lock.ts";
import type { Lockable } from "../../client/lockable.ts";
import type { Locks } from "../../client/locks.ts";
import { createLocks } from "../../client/locks.ts";
import type { LocksOptions } from "../../client/options.ts";
import type { Driver } from "../../spi/driver.ts";
import type { ChaosDriver, ChaosOptions } from "../chaos/driver.ts";
import { chaos } from "../chaos/driver.ts";
import type { TestContext } from "../context.ts";

/** A client and its line to the store. */
export interface TestClient {
  readonly locks: Locks;
  readonly chaosDriver: ChaosDriver;
}

/** Another client of the store. Closed when the test is over; without chaos options its line does what the test orders. */
export async function openTestClient(
  context: TestContext,
  options: LocksOptions = {},
  chaosOptions: ChaosOptions = {},
): Promise<TestClient> {
  const chaosDriver = chaos(await context.createDriver(), { inspect: () => context.inspect(), ...chaosOptions });
  // where a driver is wrong a test fails; it does not hang
  const locks = createLocks(chaosDriver, { wait: context.scaleMs(5_000), ...options });
  context.afterTest(() => {
    chaosDriver.reconnect();
    return locks.close();
  });
  return { locks, chaosDriver };
}

/** Waits until the store lists no claim, as seen by a client that has nothing to do with it. */
export async function waitForEmptyStore(context: TestContext): Promise<void> {
  const { driver } = await context.openClient();
  await context.waitUntil("an empty store", async () => (await driver.list({ prefix: "" }, 5)).length === 0);
  await driver.close();
}

/** Waits until so many claims stand in the store, as a client sees that has nothing to do with them: one of its own, or this. */
export async function waitForClaims(context: TestContext, count: number, by?: Driver): Promise<void> {
  const driver = by ?? (await context.openClient()).driver;
  await context.waitUntil(
    `${count} claims in the store`,
    async () => (await driver.list({ prefix: "" }, 100)).length === count,
  );
  if (by === undefined) await driver.close();
}

/** Waits until the lock is granted, and gives it back: somebody else can have it now. */
export async function assertFree(lockable: Lockable, context: TestContext): Promise<void> {
  const lock = await lockable.acquire({ wait: context.scaleMs(5_000) });
  assert.equal(await lock.release(), true);
}

/** A holder, released when the test says so. */
export async function hold(locks: Locks, key: string): Promise<Lock> {
  return locks.acquire(key, { label: "the holder" });
}

/** A promise to be awaited later: should the test fail before, nobody hears of its rejection. */
export function deferRejection<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => undefined);
  return promise;
}

/** An error of ours by its code: two copies of the package may meet in a process. */
export function hasCode(code: string): (error: unknown) => boolean {
  return (error) => {
    assert.equal((error as { code?: unknown }).code, code, String(error));
    return true;
  };
}

/** Settled how, if at all, by now? */
export async function settledState(promise: Promise<unknown>): Promise<"pending" | "fulfilled" | "rejected"> {
  return Promise.race([
    promise.then(
      () => "fulfilled" as const,
      () => "rejected" as const,
    ),
    new Promise<"pending">((resolve) => setImmediate(() => resolve("pending"))),
  ]);
}
