// A request that is aborted in the turn in which it was made sends nothing; all others start in the order in which they were made.

import { expect, test } from "vitest";
import { createLocks } from "../../../src/client/locks.ts";
import { memory } from "../../../src/drivers/memory.ts";
import type { AcquireOptions, Lock, Locks } from "../../../src/index.ts";
import type { Claim } from "../../../src/spi/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";

/** A client that is connected, and the keys of the claims that it sends. */
async function createFixture(): Promise<{ readonly locks: Locks; readonly sent: string[] }> {
  const sent: string[] = [];
  const driver = memory();
  const claim = (made: Claim): ReturnType<typeof driver.claim> => {
    sent.push(made.locks[0].key);
    return driver.claim(made);
  };
  const locks = createLocks(delegate(driver, { claim }));
  await (await locks.acquire("warm")).release();
  sent.length = 0;
  return { locks, sent };
}

test.each<[string, (locks: Locks, options: AcquireOptions) => Promise<unknown>]>([
  ["mutex", (locks, options) => locks.acquire("k", options)],
  ["reader", (locks, options) => locks.rw("k").read.acquire(options)],
  ["permit", (locks, options) => locks.semaphore("k", 2).acquire(options)],
  ["a claim of its own", (locks, options) => locks.acquire("k", { ...options, order: "strict" })],
  ["several keys", (locks, options) => locks.all("k", "l").acquire(options)],
  ["no wait", (locks, options) => locks.acquire("k", { ...options, wait: 0 })],
])("%s: an abort in the same turn sends neither claim nor release", async (_, acquire) => {
  const { locks, sent } = await createFixture();
  const controller = new AbortController();
  const request = acquire(locks, { signal: controller.signal });
  controller.abort(new Error("enough"));
  await expect(request).rejects.toThrow("enough");
  expect(sent).toEqual([]);
  await locks.close();
  expect(sent).toEqual([]);
});

test("a request without a signal that joins one with a signal takes its place when it is aborted", async () => {
  const { locks, sent } = await createFixture();
  const controller = new AbortController();
  const aborted = locks.acquire("k", { signal: controller.signal });
  const joined = locks.acquire("k");
  controller.abort(new Error("enough"));
  await expect(aborted).rejects.toThrow("enough");
  await (await joined).release();
  expect(sent).toEqual(["k"]);
  await locks.close();
});

test("claims start in the order of their requests, with a signal or without one", async () => {
  const { locks, sent } = await createFixture();
  const { signal } = new AbortController();
  const requests = ["a", "b", "c", "d"].map((key, index) => locks.acquire(key, index % 2 === 0 ? { signal } : {}));
  for (const lock of (await Promise.all(requests)) as Lock[]) await lock.release();
  expect(sent).toEqual(["a", "b", "c", "d"]);
  await locks.close();
});
