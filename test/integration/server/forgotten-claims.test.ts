// What a driver in front of a server, and a server in front of a store, keep of claims that are over: nothing.

import { expect, test } from "vitest";
import { memory } from "../../../src/drivers/memory.ts";
import { createClaimLedger } from "../../support/claim-ledger.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, makeClaim, openClient, startServer } from "../../support/server-fixture.ts";
import { ServerHarness } from "../../support/server-harness.ts";
import { until } from "../../support/until.ts";

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

test("a server forgets at its store each claim that was released, refused, revoked, or left by its client", async () => {
  const ledger = createClaimLedger(memory());
  const it = await startServer({ driver: ledger.driver });
  const one = await openClient(it.addresses[0] as string);
  const other = await openClient(it.addresses[0] as string);
  const [released, refused, waiting, left] = [makeClaim("k"), makeClaim("k", { wait: false }), makeClaim("k"), "left"];
  await one.driver.claim(released);
  await one.driver.claim(refused);
  await one.driver.claim(waiting);
  await other.driver.claim(makeClaim(left));
  expect(ledger.forgotten).toEqual([refused.id]);
  await one.driver.release(toReleases(released));
  expect(ledger.forgotten).toEqual([refused.id, released.id]);
  const { token } = await one.pushes.waitForGrant(waiting);
  await one.driver.revoke?.([{ key: "k", token, now: true }]);
  await other.driver.close();
  await until(() => it.stats().claims === 0, { within: 2_000, what: "the end of the session" });
  expect([ledger.forgotten.length, new Set(ledger.forgotten).size, ledger.openClaims.size]).toEqual([4, 4, 0]);
});
