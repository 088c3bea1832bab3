/** Clients of the library in a test, each with a connection that the test can disturb. */

import assert from "node:assert/strict";
import type { Locks } from "../client/locks.ts";
import { createLocks } from "../client/locks.ts";
import type { LocksOptions } from "../client/options.ts";
import type { ChaosDriver, ChaosOptions } from "../testing/chaos/driver.ts";
import { chaos } from "../testing/chaos/driver.ts";
import type { TestContext } from "./context.ts";

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
  await context.waitUntil("an empty store", async () => (await context.listClaims()).length === 0);
  await driver.close();
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
