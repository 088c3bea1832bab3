/** A lock whose reference another process attached while its maker runs on: it must not end with that process. */

import { expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { cleanUpAfterEach, expectHeld, makeClaim, openClient, startServer } from "../../support/server-fixture.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

test("a process that attached a lock by its reference and dies leaves it to its maker", async () => {
  const it = await startServer();
  const address = it.addresses[0] as string;
  const [firstClient, other, otherClient] = [
    await openClient(address),
    await openClient(address),
    await openClient(address),
  ];
  const claim = makeClaim("k");
  const { token } = expectHeld(await firstClient.driver.claim(claim));
  expect(await other.driver.renew([claim])).toMatchObject([{ state: "held", token }]);
  await other.driver.close();
  await until(() => it.stats().sessions === 2, { within: 2_000, what: "the end of the other" });
  expect(await otherClient.driver.claim(makeClaim("k", { wait: false }))).toEqual({ state: "none" });
  expect(await firstClient.driver.renew([claim])).toMatchObject([{ state: "held", token }]);
  // and it ends with its maker
  const next = makeClaim("k");
  await otherClient.driver.claim(next);
  await firstClient.driver.close();
  await otherClient.pushes.waitForGrant(next);
});
