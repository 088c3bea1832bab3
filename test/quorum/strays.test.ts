/** A call that comes when its claim was released makes no place that nobody wants, which would cost the next one a lease. */

import { expect, test } from "vitest";
import { claimOf } from "../support/redis-scene.ts";
import type { Link, Store } from "./links.ts";
import { held, LATE_MS, majority } from "./links.ts";

test("a release that is repeated still tells a member of the claim that is on its way there", async () => {
  const it = majority();
  const ours = await it.join();
  const [third, store] = [ours.links[2] as Link, it.stores[2] as Store];
  third.verb = "claim";
  third.trouble = "late";
  const claim = claimOf("key", { ttlMs: 10_000 });
  held(await it.within(10, ours.driver.claim(claim)));
  third.verb = "release";
  third.trouble = "silent";
  expect(await it.within(1_200, ours.driver.release([claim]))).toEqual([true]);
  third.trouble = null;
  await it.within(100, ours.driver.release([claim]));
  await it.clock.pass(LATE_MS);
  expect(await store.direct().list({ prefix: "" }, 10)).toEqual([]);
});

test("a place that is being made again when another client releases the lock is not made", async () => {
  const it = majority();
  const [ours, other] = [await it.join(), await it.join()];
  const [third, store] = [ours.links[2] as Link, it.stores[2] as Store];
  const claim = claimOf("key", { ttlMs: 10_000 });
  held(await it.within(10, ours.driver.claim(claim)));
  store.restartEmpty();
  third.verb = "claim";
  third.trouble = "late";
  await it.within(10, ours.driver.renew([claim]));
  expect(await it.within(10, other.driver.release([claim]))).toEqual([true]);
  await it.clock.pass(LATE_MS);
  expect(await store.direct().list({ prefix: "" }, 10)).toEqual([]);
});
