/** A claim's id is enough to attach it elsewhere. */

import assert from "node:assert/strict";
import type { Lock } from "../../client/lock.ts";
import type { Driver } from "../../spi/driver.ts";
import type { DefineTest } from "../context.ts";
import { assertHeld } from "../context.ts";
import type { ConformanceSettings } from "../options.ts";
import { openTestClient } from "../test-client.ts";

export function testDetach(test: DefineTest, { traits, verbs }: ConformanceSettings): void {
  if (!traits.lease.claim) return;
  const detaches = verbs.includes("detach");

  /** Stores without sessions need no detach(): there the claim's id is enough to use it. */
  async function detach(driver: Driver, ...claims: Parameters<NonNullable<Driver["detach"]>>[0]): Promise<void> {
    if (driver.detach !== undefined) assert.ok((await driver.detach(claims)).every(Boolean));
  }

  test("a detached claim outlives its client, and another one renews and releases it", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [claim, next] = [context.createClaim("key", { tokenCount: 5 }), context.createClaim("key")];
    const { token, tokenCount } = await clientA.claimHeld(claim);
    await detach(clientA.driver, claim);
    await clientA.driver.close();
    await clientB.claimWaiting(next);
    const taken = assertHeld(await clientB.renew(claim), claim);
    assert.deepEqual([taken.token, taken.tokenCount], [token, tokenCount]);
    assert.deepEqual(await clientB.release(claim), [true]);
    assert.ok((await clientB.waitForGrant(next)).token > token || !traits.fencing);
    await clientB.release(next);
  });

  test("a detached claim that is not attached ends with its lease", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [claim, next] = [context.createClaim("key", { ttlMs: context.shortLeaseMs }), context.createClaim("key")];
    await clientA.claimHeld(claim);
    await detach(clientA.driver, claim);
    await clientA.driver.close();
    await clientB.claimWaiting(next);
    await clientB.waitForGrant(next);
    assert.equal((await clientB.renew(claim)).state, "none");
    await clientB.release(next);
  });

  if (!detaches) return;

  test("only held claims are detached", async (context) => {
    const client = await context.openClient();
    const [held, waiting, unknown] = [
      context.createClaim("key"),
      context.createClaim("key"),
      context.createClaim("key"),
    ];
    await client.claimHeld(held);
    await client.claimWaiting(waiting);
    assert.deepEqual(await client.driver.detach?.([waiting, held, unknown]), [false, true, false]);
    await client.release(waiting, held);
  });

  test("a request that waits learns of a lease that was cut short, and gets the lock when it ends", async (context) => {
    const client = await context.openClient();
    const short = context.createClaim("short", { ttlMs: 60_000 });
    await client.claimHeld(short);
    const { locks } = await openTestClient(context, { ttl: 60_000 });
    // a client that waits for the first time may renew its claim once it has subscribed, and so see the shorter lease
    // although the driver sends it no notification
    const earlier = context.createClaim("earlier");
    await client.claimHeld(earlier);
    const first = locks.acquire("earlier");
    await context.waitUntil("the first request", async () => (await context.listClaims()).length === 3);
    await client.release(earlier);
    await (await first).release();
    let lock: Lock | null = null;
    const next = locks.acquire("short").then((granted) => {
      lock = granted;
    });
    await context.waitUntil("the request", async () => (await context.listClaims()).length === 2);
    assert.deepEqual(await client.driver.detach?.([short], context.shortLeaseMs), [true]);
    await context.waitUntil("the lock", () => lock, context.scaleMs(5_000));
    await next;
    await locks.close();
  });

  test("a detached claim ends after the given time, and a renewal restarts its full lease", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [short, renewed] = [
      context.createClaim("short", { ttlMs: 60_000 }),
      context.createClaim("renewed", { ttlMs: 60_000 }),
    ];
    const next = context.createClaim("short");
    await clientA.claimHeld(short);
    await clientA.claimHeld(renewed);
    assert.deepEqual(await clientA.driver.detach?.([short, renewed], context.shortLeaseMs), [true, true]);
    await clientA.driver.close();
    await clientB.claimWaiting(next);
    const again = assertHeld(await clientB.renew(renewed), renewed);
    assert.ok(
      again.remainingMs > context.shortLeaseMs,
      `a renewal restarts the full lease, not ${again.remainingMs} ms`,
    );
    await clientB.waitForGrant(next);
    assert.deepEqual(await clientB.renew(short), { state: "none", reason: "expired" });
    await clientB.release(next, renewed);
  });

  test("a detached claim has never more than its own lease left", async (context) => {
    const client = await context.openClient();
    const claim = context.createClaim("key", { ttlMs: 60_000 });
    await client.claimHeld(claim);
    assert.deepEqual(await client.driver.detach?.([claim], 3_600_000), [true]);
    const [view] = (await client.driver.list({ key: "key" }, { max: 1 })).items;
    assert.ok(view?.answer.state === "held" && view.answer.remainingMs <= 60_000);
    await client.release(claim);
  });

  test("an ended detached claim says how it ended", async (context) => {
    const client = await context.openClient();
    const [released, expired] = [
      context.createClaim("released"),
      context.createClaim("expired", { ttlMs: context.shortLeaseMs }),
    ];
    await client.claimHeld(released);
    await client.claimHeld(expired);
    await detach(client.driver, released, expired);
    await client.release(released);
    assert.deepEqual(await client.renew(released), { state: "none", reason: "released" });
    await context.waitUntil(
      "the end of its lease",
      async () => (await client.driver.list({ prefix: "expired" }, { max: 1 })).items.length === 0,
    );
    assert.deepEqual(await client.renew(expired), { state: "none", reason: "expired" });
  });
}
