/** An operator asks a holder to go. */

import assert from "node:assert/strict";
import type { Driver } from "../../spi/driver.ts";
import type { Check, Subject } from "../subject.ts";

export function revoking(check: Check, { traits, verbs }: Subject): void {
  if (!verbs.includes("revoke")) return;

  check("a revoked claim is none at once, but keeps its place until it is released", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    const [claim, next] = [scene.claim("key"), scene.claim("key")];
    const { token } = await one.hold(claim);
    await other.queue(next);
    assert.equal(await revoke(other.driver, { key: "key", token, now: false }), true);
    assert.deepEqual(await one.ask(claim), { state: "none", reason: "revoked" });
    assert.equal((await one.claim(claim)).state, "none");
    assert.equal((await other.ask(next)).state, "waiting", "who was asked to go may still be working");
    await one.release(claim);
    await other.granted(next);
    await other.release(next);
  });

  check("a revoked claim can be removed at once", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    const [claim, next] = [scene.claim("key"), scene.claim("key")];
    const { token } = await one.hold(claim);
    await other.queue(next);
    assert.equal(await revoke(other.driver, { key: "key", token, now: true }), true);
    await other.granted(next);
    assert.deepEqual(await one.ask(claim), { state: "none", reason: "revoked" });
    assert.deepEqual(await one.release(claim), [false]);
    assert.equal((await other.ask(next)).state, "held");
    await other.release(next);
  });

  check("a claim that was asked to go can still be removed at once", async (scene) => {
    const client = await scene.client();
    const [claim, next] = [scene.claim("key"), scene.claim("key")];
    const { token } = await client.hold(claim);
    await client.queue(next);
    assert.equal(await revoke(client.driver, { key: "key", token, now: false }), true);
    assert.equal(await revoke(client.driver, { key: "key", token, now: false }), false, "it has been asked already");
    assert.equal(await revoke(client.driver, { key: "key", token, now: true }), true);
    await client.granted(next);
    await client.release(next);
  });

  check("only the holder with this key and this token is revoked", async (scene) => {
    const client = await scene.client();
    const [claim, waiting] = [scene.claim("key"), scene.claim("key")];
    const { token } = await client.hold(claim);
    await client.queue(waiting);
    for (const now of [true, false]) {
      assert.equal(await revoke(client.driver, { key: "key", token: token + 1n, now }), false);
      assert.equal(await revoke(client.driver, { key: "other", token, now }), false);
      assert.equal(await revoke(client.driver, { key: "key", token: 0n, now }), false, "waiting claims have no token");
    }
    assert.equal((await client.ask(claim)).state, "held");
    assert.equal((await client.ask(waiting)).state, "waiting");
    await client.release(waiting, claim);
    assert.equal(await revoke(client.driver, { key: "key", token, now: true }), false);
  });

  if (!traits.lease.claim) return;

  check("a revoked claim that is never released ends with its lease", async (scene) => {
    const client = await scene.client();
    const [claim, next] = [scene.claim("key", { ttlMs: scene.brief }), scene.claim("key")];
    const { token } = await client.hold(claim);
    await client.queue(next);
    await revoke(client.driver, { key: "key", token, now: false });
    await scene.until("the next holder", async () => {
      await client.ask(claim); // and asking does not prolong it
      return (await client.ask(next)).state === "held";
    });
    await client.release(next);
  });
}

type Target = Parameters<NonNullable<Driver["revoke"]>>[0][number];

async function revoke(driver: Driver, target: Target): Promise<boolean | undefined> {
  return (await driver.revoke?.([target]))?.[0];
}
