/** Clients of the library in a test, each with a connection that the test can disturb. */

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

/** A client and its chaos driver. */
export interface TestClient {
  readonly locks: Locks;
  readonly chaosDriver: ChaosDriver;
}

/**
 * Another client of the store, closed after the test. Without chaos options its connection has only the faults that the
 * test orders.
 */
export async function openTestClient(
  context: TestContext,
  options: LocksOptions = {},
  chaosOptions: ChaosOptions = {},
): Promise<TestClient> {
  const chaosDriver = chaos(await context.createDriver(), { inspect: () => context.inspect(), ...chaosOptions });
  // with a faulty driver a test must fail, not hang
  const locks = createLocks(chaosDriver, { wait: context.scaleMs(5_000), ...options });
  context.afterTest(() => {
    chaosDriver.reconnect();
    return locks.close();
  });
  return { locks, chaosDriver };
}

/** Waits until the store lists no claim to an uninvolved client. */
export async function waitForEmptyStore(context: TestContext): Promise<void> {
  const { driver } = await context.openClient();
  await context.waitUntil("an empty store", async () => (await driver.list({ prefix: "" }, 5)).length === 0);
  await driver.close();
}

/** Waits until the store lists this many claims, to a new client or to the given one. */
export async function waitForClaims(context: TestContext, count: number, by?: Driver): Promise<void> {
  const driver = by ?? (await context.openClient()).driver;
  await context.waitUntil(
    `${count} claims in the store`,
    async () => (await driver.list({ prefix: "" }, 100)).length === count,
  );
  if (by === undefined) await driver.close();
}

/** Acquires and releases the lock, to assert that it is free. */
export async function assertFree(lockable: Lockable, context: TestContext): Promise<void> {
  const lock = await lockable.acquire({ wait: context.scaleMs(5_000) });
  assert.equal(await lock.release(), true);
}

/** A holder that the test releases. */
export async function hold(locks: Locks, key: string): Promise<Lock> {
  return locks.acquire(key, { label: "the holder" });
}

/** Prepares a promise to be awaited later: if the test fails before, its rejection must not count as unhandled. */
export function deferRejection<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => undefined);
  return promise;
}

/** Matches an error by its code, not its class: a process may contain two copies of the package. */
export function hasCode(code: string): (error: unknown) => boolean {
  return (error) => {
    assert.equal((error as { code?: unknown }).code, code, String(error));
    return true;
  };
}

/** How the promise has settled by now, if at all. */
export async function settledState(promise: Promise<unknown>): Promise<"pending" | "fulfilled" | "rejected"> {
  return Promise.race([
    promise.then(
      () => "fulfilled" as const,
      () => "rejected" as const,
    ),
    new Promise<"pending">((resolve) => setImmediate(() => resolve("pending"))),
  ]);
}
