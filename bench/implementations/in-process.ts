/** Locks that stay in one process, and the control that locks nothing. */

import type { Lock } from "../../src/client/lock.ts";
import { memory } from "../../src/drivers/memory.ts";
import { createLocks } from "../../src/index.ts";
import type { Claim } from "../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../src/spi/driver.ts";
import { randomId } from "../../src/util/ids.ts";
import type { LockImplementation } from "../harness/closed-loop.ts";
import { CACHED } from "./cached.ts";

/** As a user gets it: the library with the memory driver. */
export async function openMemory(): Promise<LockImplementation<Lock>> {
  const locks = createLocks(memory());
  return {
    acquire: (key) => locks.acquire(key),
    release: (lock) => lock.release(),
    tokenOf: (lock) => lock.token,
    close: () => locks.close(),
  };
}

/** The same with the option `cache`: a lock that was used before asks no driver. */
export async function openMemoryCached(): Promise<LockImplementation<Lock>> {
  const locks = createLocks(memory(), CACHED);
  return {
    acquire: (key) => locks.acquire(key),
    release: (lock) => lock.release(),
    tokenOf: (lock) => lock.token,
    close: () => locks.close(),
  };
}

/** The same, each pair by a call of using(). */
export async function openMemoryUsing(): Promise<LockImplementation<Lock>> {
  const locks = createLocks(memory());
  return {
    acquire: (key) => locks.acquire(key),
    release: (lock) => lock.release(),
    pair: (key) => locks.using(key, doNothing),
    close: () => locks.close(),
  };
}

async function doNothing(): Promise<void> {}

/** The same without the client: what the lock table costs. */
export async function openMemoryDriver(): Promise<LockImplementation<Claim>> {
  const driver = memory();
  const ignore = (): void => undefined;
  const pushes = { pushed: ignore, recheck: ignore, disconnected: ignore, reconnected: ignore, recalled: ignore };
  await driver.open({ ...pushes, heldTokens: () => null });
  return {
    async acquire(key) {
      const claim: Claim = {
        id: randomId(),
        locks: [{ key, permits: ALL_PERMITS, limit: ALL_PERMITS }],
        ttlMs: 30_000,
        tokenCount: 1,
        floor: 0n,
        wait: true,
        label: "",
      };
      await driver.claim(claim);
      return claim;
    },
    release: (claim) => driver.release([{ claim, hasUnansweredClaim: false }]),
    close: () => driver.close(),
  };
}

/** Excludes no caller: shows that a check of exclusion can fail. */
export async function openNoLock(): Promise<LockImplementation> {
  return { acquire: async () => null, release: () => undefined, close: async () => undefined };
}
