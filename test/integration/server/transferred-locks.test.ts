/** A lock whose reference another process attached while its maker runs on: it must not end with that process. */

import { expect, test } from "vitest";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import type { ServeOptions } from "../../../src/server/server.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, expectHeld, makeClaim, openClient, startServer } from "../../support/server-fixture.ts";
import { until } from "../../support/until.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const kinds: readonly [string, () => Partial<ServeOptions>][] = [
  ["the server's own table", () => ({})],
  ["a proxy", () => ({ driver: memory() })],
];

test.each(kinds)(
  "a process that attached a lock by its reference and dies leaves it to its maker (%s)",
  async (_, optionsOf) => {
    const it = await startServer(optionsOf());
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
  },
);

test("a proxy that does not know a detached lock does not end it with a client that attached it and died", async () => {
  const store = memoryStore();
  const first = await startServer({ driver: memory({ store }) });
  const firstClient = await openClient(first.addresses[0] as string);
  const claim = makeClaim("k");
  const { token } = expectHeld(await firstClient.driver.claim(claim));
  expect(await firstClient.driver.detach?.([claim])).toEqual([true]);
  await firstClient.driver.close();
  await first.close();
  const secondServer = await startServer({ driver: memory({ store }) });
  const other = await openClient(secondServer.addresses[0] as string);
  expect(await other.driver.renew([claim])).toMatchObject([{ state: "held", token }]);
  await other.driver.close();
  await until(() => secondServer.stats().sessions === 0, { within: 2_000, what: "the end of the other" });
  const otherClient = await openClient(secondServer.addresses[0] as string);
  expect(await otherClient.driver.claim(makeClaim("k", { wait: false }))).toEqual({ state: "none" });
  expect(await otherClient.driver.renew([claim])).toMatchObject([{ state: "held", token }]);
  expect(await otherClient.driver.release(toReleases(claim))).toEqual([true]);
});
