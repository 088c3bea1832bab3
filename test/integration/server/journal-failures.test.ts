/** A journalled claim is a promise: a later write that fails must not take it back. */

import { expect, test } from "vitest";
import type { RevokeTarget } from "../../../src/spi/driver.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, expectHeld, makeClaim } from "../../support/server-fixture.ts";
import type { MemoryStorage } from "../../support/server-harness.ts";
import { ServerHarness } from "../../support/server-harness.ts";

const DAY_MS = 86_400_000;

cleanUpAfterEach();

test("a long claim whose detaching could not be written stays on disk when others are written, and is restored", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const disk = harness.storage as MemoryStorage;
  const client = await harness.connectClient();
  const otherClient = await harness.connectClient();
  const day = makeClaim("day", { ttlMs: DAY_MS });
  const { token } = expectHeld(await client.driver.claim(day));
  disk.isFull = true;
  await expect(client.driver.detach?.([day])).rejects.toThrow(/ENOSPC/);
  disk.isFull = false;
  await harness.clock.advance(1_500);
  expectHeld(await otherClient.driver.claim(makeClaim("another", { ttlMs: DAY_MS })));
  // its holder is cut off, and its deadline is a day away
  client.isUnreachable = true;
  harness.crash();
  await harness.start();
  await harness.clock.advance(61_000);
  const contender = await harness.connectClient();
  expect(await contender.driver.claim(makeClaim("day", { wait: false }))).toEqual({ state: "none" });
  client.isUnreachable = false;
  await harness.clock.advance(5_000);
  expect(await client.driver.renew([day])).toMatchObject([{ state: "held", token }]);
});

test("a revoked lock of the journal is still revoked after a crash, and an ended one is gone", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const client = await harness.connectClient();
  const operator = await harness.connectClient();
  const [revokedClaim, removed] = [makeClaim("revoked", { ttlMs: DAY_MS }), makeClaim("removed", { ttlMs: DAY_MS })];
  const tokens = [
    expectHeld(await client.driver.claim(revokedClaim)).token,
    expectHeld(await client.driver.claim(removed)).token,
  ] as const;
  const targets = [
    { key: "revoked", token: tokens[0], now: false },
    { key: "removed", token: tokens[1], now: true },
  ];
  client.isUnreachable = true;
  expect(await operator.driver.revoke?.(targets)).toEqual([true, true]);
  harness.crash();
  await harness.start();
  client.isUnreachable = false;
  await harness.clock.advance(61_000);
  expect(await client.driver.renew([revokedClaim])).toEqual([{ state: "none", reason: "revoked" }]);
  expect(await operator.driver.claim(makeClaim("revoked", { wait: false }))).toEqual({ state: "none" });
  expectHeld(await operator.driver.claim(makeClaim("removed", { wait: false })));
});

test("a long claim that was released while the disk was full is not restored, once that has been answered", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const disk = harness.storage as MemoryStorage;
  const { driver } = await harness.connectClient();
  const [releasedClaim, endedClaim] = [makeClaim("a", { ttlMs: DAY_MS }), makeClaim("b", { ttlMs: DAY_MS })];
  expectHeld(await driver.claim(releasedClaim));
  const { token } = expectHeld(await driver.claim(endedClaim));
  disk.isFull = true;
  const targets = [{ key: "b", token, now: true }];
  await expect(driver.release(toReleases(releasedClaim))).rejects.toThrow(/ENOSPC/);
  await expect(driver.revoke?.(targets)).rejects.toThrow(/ENOSPC/);
  await harness.clock.advance(5_000);
  // the claim is gone, but not from the disk
  await expect(driver.release(toReleases(releasedClaim))).rejects.toThrow(/ENOSPC/);
  disk.isFull = false;
  expect(await driver.release(toReleases(releasedClaim))).toEqual([false]);
  harness.crash();
  await harness.start();
  await harness.clock.advance(61_000);
  expect(harness.inspect().records.size).toBe(0);
});

test("a detached lock stays detached when it is detached again and the disk fails", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const disk = harness.storage as MemoryStorage;
  const [client, otherClient] = [await harness.connectClient(), await harness.connectClient()];
  const claim = makeClaim("k");
  expectHeld(await client.driver.claim(claim));
  expect(await client.driver.detach?.([claim])).toEqual([true]);
  disk.isFull = true;
  // as a client does that has not received the answer
  expect(await client.driver.detach?.([claim])).toEqual([true]);
  client.isUnreachable = true;
  client.disconnect();
  expect(await otherClient.driver.claim(makeClaim("k", { wait: false }))).toEqual({ state: "none" });
});

test("a revocation that could not be written is answered with the error, and repeated it is written", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const disk = harness.storage as MemoryStorage;
  const [client, operator] = [await harness.connectClient(), await harness.connectClient()];
  const [long, short] = [makeClaim("long", { ttlMs: DAY_MS }), makeClaim("short")];
  const targets = [long, short].map(async (claim) => {
    const { token } = expectHeld(await client.driver.claim(claim));
    return { key: claim.locks[0].key, token, now: false };
  });
  const [longTarget, shortTarget] = await Promise.all(targets);
  disk.isFull = true;
  await expect(operator.driver.revoke?.([longTarget as RevokeTarget])).rejects.toThrow(/ENOSPC/);
  // nothing of it is on disk
  expect(await operator.driver.revoke?.([shortTarget as RevokeTarget])).toEqual([true]);
  disk.isFull = false;
  expect(await operator.driver.revoke?.([longTarget as RevokeTarget])).toEqual([false]);
  client.isUnreachable = true;
  harness.crash();
  await harness.start();
  client.isUnreachable = false;
  await harness.clock.advance(61_000);
  expect(await client.driver.renew([long])).toEqual([{ state: "none", reason: "revoked" }]);
});
