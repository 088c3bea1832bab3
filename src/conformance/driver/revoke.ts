/** An operator revokes a lock. */

import assert from "node:assert/strict";
import type { Driver } from "../../spi/driver.ts";
import type { DefineTest } from "../context.ts";
import type { ConformanceSettings } from "../options.ts";

export function testRevoke(test: DefineTest, { traits, verbs }: ConformanceSettings): void {
  if (!verbs.includes("revoke")) return;

  test("a revoked claim is none at once, but keeps its entry until it is released", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [claim, next] = [context.createClaim("key"), context.createClaim("key")];
    const { token } = await clientA.claimHeld(claim);
    await clientB.claimWaiting(next);
    assert.equal(await revoke(clientB.driver, { key: "key", token, now: false }), true);
    assert.deepEqual(await clientA.renew(claim), { state: "none", reason: "revoked" });
    assert.equal((await clientA.claim(claim)).state, "none");
    assert.equal((await clientB.renew(next)).state, "waiting", "a revoked holder may still be working");
    await clientA.release(claim);
    await clientB.waitForGrant(next);
    await clientB.release(next);
  });

  test("a revoked claim can be removed at once", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [claim, next] = [context.createClaim("key"), context.createClaim("key")];
    const { token } = await clientA.claimHeld(claim);
    await clientB.claimWaiting(next);
    assert.equal(await revoke(clientB.driver, { key: "key", token, now: true }), true);
    await clientB.waitForGrant(next);
    assert.deepEqual(await clientA.renew(claim), { state: "none", reason: "revoked" });
    assert.deepEqual(await clientA.release(claim), [false]);
    assert.equal((await clientB.renew(next)).state, "held");
    await clientB.release(next);
  });

  test("a claim that was asked to go can still be removed at once", async (context) => {
    const client = await context.openClient();
    const [claim, next] = [context.createClaim("key"), context.createClaim("key")];
    const { token } = await client.claimHeld(claim);
    await client.claimWaiting(next);
    assert.equal(await revoke(client.driver, { key: "key", token, now: false }), true);
    assert.equal(await revoke(client.driver, { key: "key", token, now: false }), false, "it is already revoked");
    assert.equal(await revoke(client.driver, { key: "key", token, now: true }), true);
    await client.waitForGrant(next);
    await client.release(next);
  });

  test("only the holder with this key and this token is revoked", async (context) => {
    const client = await context.openClient();
    const [claim, waiting] = [context.createClaim("key"), context.createClaim("key")];
    const { token } = await client.claimHeld(claim);
    await client.claimWaiting(waiting);
    for (const now of [true, false]) {
      assert.equal(await revoke(client.driver, { key: "key", token: token + 1n, now }), false);
      assert.equal(await revoke(client.driver, { key: "other", token, now }), false);
      assert.equal(await revoke(client.driver, { key: "key", token: 0n, now }), false, "waiting claims have no token");
    }
    assert.equal((await client.renew(claim)).state, "held");
    assert.equal((await client.renew(waiting)).state, "waiting");
    await client.release(waiting, claim);
    assert.equal(await revoke(client.driver, { key: "key", token, now: true }), false);
  });

  if (!traits.lease.claim) return;

  test("a revoked claim that is never released ends with its lease", async (context) => {
    const client = await context.openClient();
    const [claim, next] = [context.createClaim("key", { ttlMs: context.shortLeaseMs }), context.createClaim("key")];
    const { token } = await client.claimHeld(claim);
    await client.claimWaiting(next);
    await revoke(client.driver, { key: "key", token, now: false });
    await context.waitUntil("the next holder", async () => {
      await client.renew(claim); // renewing it does not extend its lease
      return (await client.renew(next)).state === "held";
    });
    assert.equal((await client.renew(next)).state, "held");
    await client.release(next);
  });
}

type Target = Parameters<NonNullable<Driver["revoke"]>>[0][number];

async function revoke(driver: Driver, target: Target): Promise<boolean | undefined> {
  return (await driver.revoke?.([target]))?.[0];
}
