// What a driver in front of a server, and a server in front of a store, keep of claims that are over: nothing.

import { expect, test } from "vitest";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { cleanUpAfterEach, makeClaim } from "../../support/server-fixture.ts";
import { ServerHarness } from "../../support/server-harness.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

test("a client whose claims were all forgotten does not connect again, although none was ever answered", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  const { driver } = client;
  harness.crash();
  const claims = Array.from({ length: 10_000 }, (_, index) => makeClaim(`k${index}`));
  // the renewals: of locks to attach
  const calls = [...claims.slice(5_000).map((claim) => driver.claim(claim)), driver.renew(claims.slice(0, 5_000))];
  const settled = Promise.allSettled(calls);
  await harness.clock.advance(60_000);
  expect(new Set((await settled).map(({ status }) => status))).toEqual(new Set(["rejected"]));
  const { dials } = client;
  await harness.clock.advance(60_000);
  expect(client.dials, "it is needed for the claims").toBeGreaterThan(dials);
  for (const claim of claims) driver.forget?.(claim);
  await harness.clock.advance(10_000);
  const dialsByThen = client.dials;
  await harness.clock.advance(60_000);
  expect(client.dials).toBe(dialsByThen);
});
