/** What the tests of the client share. */

import assert from "node:assert/strict";
import type { Lock } from "../../src/client/lock.ts";
import type { Lockable, Locks } from "../../src/client/locks.ts";
import type { TestContext } from "../../src/conformance/context.ts";
import type { Driver } from "../../src/spi/driver.ts";

/** Waits until the store lists this many claims, to a new client or to the given one. */
export async function waitForClaims(context: TestContext, count: number, listingDriver?: Driver): Promise<void> {
  const driver = listingDriver ?? (await context.openClient()).driver;
  const listClaims = async () =>
    listingDriver === undefined ? context.listClaims() : (await driver.list({ prefix: "" }, { max: 100 })).items;
  await context.waitUntil(`${count} claims in the store`, async () => (await listClaims()).length === count);
  if (listingDriver === undefined) await driver.close();
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
