// What a proxy limits, forgets and logs by itself, whatever its store does.

import { expect, test } from "vitest";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { resolveLimits } from "../../../src/server/limits.ts";
import { openProxyBackend } from "../../../src/server/proxy/proxy-backend.ts";
import { Session } from "../../../src/server/session/session.ts";
import { randomId } from "../../../src/util/ids.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, expectHeld, makeClaim, openClient, startServer } from "../../support/server-fixture.ts";
import { createTestAccess, testAccount } from "../../support/test-accounts.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

test("the limits on claims also apply with a store behind the server: in all, by client, by account", async () => {
  const ana = testAccount("ana");
  const access = createTestAccess(ana);
  for (const [limits, hasAccounts, what] of [
    [{ claims: 2 }, true, "at most 2 claims on this server"],
    [{ claimsPerAccount: 2 }, false, "at most 2 claims of one client"],
    [{ claimsPerAccount: 2 }, true, "at most 2 claims of one account"],
  ] as const) {
    const it = await startServer({ driver: memory(), limits, ...(hasAccounts && { access }) });
    const { driver } = await openClient(it.addresses[0] as string, { credential: ana.credential });
    const [claimA, claimB, more] = [makeClaim("a"), makeClaim("b"), makeClaim("more")];
    expectHeld(await driver.claim(claimA));
    expectHeld(await driver.claim(claimB));
    await expect(driver.claim(more)).rejects.toThrow(what);
    // existing claims continue
    expectHeld(await driver.claim(claimA));
    expect(await driver.renew([claimA, claimB])).toMatchObject([{ state: "held" }, { state: "held" }]);
    expect(await driver.release(toReleases(claimA))).toEqual([true]);
    expectHeld(await driver.claim(more));
    await it.close();
  }
});

test("claims that the store has dropped by itself do not take up room for ever", async () => {
  const clock = new FakeClock();
  const relay = await openProxyBackend({
    driver: memory(),
    clock,
    sessionMs: 30_000,
    probe: () => "unknown",
    log: () => undefined,
    limits: resolveLimits({ claims: 2 }),
  });
  const ownSession = new Session({ session: randomId(), label: "", pid: null, pidStart: null }, false, clock.now());
  const { backend } = relay;
  const endedClaims = [makeClaim("a", { ttlMs: 1_000 }), makeClaim("b", { ttlMs: 1_000 })];
  for (const claim of endedClaims) await backend.claim(ownSession, claim);
  await backend.detach(
    ownSession,
    endedClaims.map(({ id }) => id),
  );
  await expect(backend.claim(ownSession, makeClaim("c"))).rejects.toThrow("at most 2 claims on this server");
  await clock.advance(5_000);
  expect(await backend.claim(ownSession, makeClaim("c"))).toMatchObject({ state: "held" });
  await relay.close();
});

test("renewals that the store did not answer leave no trace of claims that it never reported", async () => {
  const inner = memory();
  const it = await startServer({
    driver: { ...inner, renew: () => Promise.reject(new Error("connection refused")) },
  });
  const { driver } = await openClient(it.addresses[0] as string);
  const rejectedClaims = Array.from({ length: 50 }, (_, n) => makeClaim(`k${n}`));
  await expect(driver.renew(rejectedClaims)).rejects.toThrow("call to its store failed");
  expect(it.stats().claims).toBe(0);
});

test("a forced release is logged with its reason, whichever client placed the lock", async () => {
  const store = memoryStore();
  const it = await startServer({ driver: memory({ store }) });
  const { driver } = await openClient(it.addresses[0] as string);
  const otherDriver = memory({ store });
  await otherDriver.open(NO_EVENTS);
  const [localClaim, remoteClaim] = [makeClaim("here"), makeClaim("there")];
  const tokens = [
    expectHeld(await driver.claim(localClaim)).token,
    expectHeld(await otherDriver.claim(remoteClaim)).token,
  ] as const;
  const targets = [
    { key: "here", token: tokens[0], now: false, reason: "its host is gone" },
    { key: "there", token: tokens[1], now: true, reason: "so is this one" },
    { key: "there", token: 5n, now: true, reason: "not held" },
  ];
  expect(await driver.revoke?.(targets)).toEqual([true, true, false]);
  const revocations = it.logged.filter((line) => line.startsWith("a lock was"));
  expect(revocations).toEqual([
    expect.stringMatching(/^a lock was revoked .*"here".*its host is gone/),
    expect.stringMatching(/^a lock was removed at once .*"there".*so is this one/),
  ]);
  await otherDriver.close();
});
