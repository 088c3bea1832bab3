/** Leases end if they are not renewed, and only then. */

import assert from "node:assert/strict";
import type { Claim } from "../../spi/driver.ts";
import type { DefineTest, DriverClient } from "../context.ts";
import { assertHeld } from "../context.ts";
import type { ConformanceSettings } from "../options.ts";

/** Clock rates may differ by 1 %, and clocks tick in milliseconds. */
const isTooEarly = (ms: number): number => ms * 0.99 - 2;

export function testExpiry(test: DefineTest, { traits }: ConformanceSettings): void {
  if (!traits.lease.claim) return;

  test("the next waiter is granted when the holder's lease ends, not before", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [holder, waiter] = [context.createClaim("key", { ttlMs: context.shortLeaseMs }), context.createClaim("key")];
    const sentAt = performance.now();
    await clientA.claimHeld(holder);
    const { recheckMs } = await clientB.claimWaiting(waiter);
    assert.ok(recheckMs > 0 && Number.isFinite(recheckMs));
    await clientB.waitForGrant(waiter);
    assert.ok(performance.now() - sentAt >= isTooEarly(context.shortLeaseMs), "the lease lasted its full length");
    await clientB.release(waiter);
  });

  if (traits.lease.observed) {
    test("a client that has just come waits a whole lease behind a holder that is dead", async (context) => {
      const client = await context.openClient();
      const [dead, waiter] = [context.createClaim("key", { ttlMs: context.shortLeaseMs }), context.createClaim("key")];
      await client.claimHeld(dead);
      await client.driver.close();
      await context.sleep(0.6 * context.shortLeaseMs);
      const newcomer = await context.openClient();
      const cameAt = performance.now();
      await newcomer.claimWaiting(waiter);
      await newcomer.waitForGrant(waiter);
      assert.ok(
        performance.now() - cameAt >= isTooEarly(context.shortLeaseMs),
        "it has seen the lease for its full length",
      );
      await newcomer.release(waiter);
    });
  }

  test("a waiter that rechecks after recheckMs is granted soon after the holder's lease ends", async (context) => {
    const client = await context.openClient();
    const [holder, waiter] = [context.createClaim("key", { ttlMs: context.shortLeaseMs }), context.createClaim("key")];
    await client.claimHeld(holder);
    let answer = await client.claim(waiter);
    const sentAt = performance.now();
    while (answer.state === "waiting") {
      assert.ok(performance.now() - sentAt < context.scaleMs(3_000), "recheckMs leads to the grant in time");
      await context.sleep(answer.recheckMs);
      answer = await client.renew(waiter);
    }
    assertHeld(answer, waiter);
    await client.release(waiter);
  });

  test("an expired holder is answered none, and its release false", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [expired, next] = [context.createClaim("key", { ttlMs: context.shortLeaseMs }), context.createClaim("key")];
    await clientA.claimHeld(expired);
    await clientB.claimWaiting(next);
    await clientB.waitForGrant(next);
    assert.equal((await clientA.renew(expired)).state, "none");
    assert.deepEqual(await clientA.release(expired), [false]);
    assert.equal(
      (await clientB.renew(next)).state,
      "held",
      "the late release of an expired claim does not free another claim's lock",
    );
    await clientB.release(next);
  });

  test("an expired claim leaves nothing, even without another claim after it", async (context) => {
    const client = await context.openClient();
    const claim = context.createClaim("key", { ttlMs: context.shortLeaseMs });
    await client.claimHeld(claim);
    await context.waitUntil(
      "an empty list",
      async () => (await client.driver.list({ prefix: "" }, { max: 10 })).items.length === 0,
    );
    assert.equal((await client.renew(claim)).state, "none");
    assert.ok(await client.isFree("key"));
  });

  for (const verb of ["claim", "renew"] as const) {
    test(`a lease that is restarted by ${verb} does not end`, async (context) => {
      const [clientA, clientB] = [await context.openClient(), await context.openClient()];
      const [holder, waiter] = [
        context.createClaim("key", { ttlMs: context.shortLeaseMs }),
        context.createClaim("key", { ttlMs: context.shortLeaseMs }),
      ];
      await clientA.claimHeld(holder);
      await clientB.claimWaiting(waiter);
      const claimAgain = (client: DriverClient, claim: Claim) =>
        verb === "claim" ? client.claim(claim) : client.renew(claim);
      const end = performance.now() + 1.6 * context.shortLeaseMs;
      await context.waitUntil("a lease and a half to pass", async () => {
        assert.equal((await claimAgain(clientA, holder)).state, "held");
        assert.equal((await claimAgain(clientB, waiter)).state, "waiting");
        await context.sleep(context.shortLeaseMs / 10);
        return performance.now() >= end;
      });
      await clientB.release(waiter);
      await clientA.release(holder);
    });
  }

  test("a waiting claim that is not renewed loses its entry, and the next moves up", async (context) => {
    const client = await context.openClient();
    const [holder, quietWaiter, next] = [
      context.createClaim("key"),
      context.createClaim("key", { ttlMs: context.shortLeaseMs }),
      context.createClaim("key"),
    ];
    await client.claimHeld(holder);
    await client.claimWaiting(quietWaiter);
    await client.claimWaiting(next);
    await context.waitUntil(
      "the end of the quiet one",
      async () => (await client.driver.list({ prefix: "" }, { max: 10 })).items.length === 2,
    );
    assert.equal((await client.renew(quietWaiter)).state, "none");
    assert.equal((await client.renew(next)).state, "waiting");
    await client.release(holder);
    await client.waitForGrant(next);
    await client.release(next);
  });

  test("an answer tells what is left of the lease by then", async (context) => {
    const client = await context.openClient();
    const claim = context.createClaim("key", { ttlMs: context.scaleLease(4_000) });
    const sentAt = performance.now();
    const first = await client.claimHeld(claim);
    const held = assertHeld(await client.renew(claim), claim);
    const passed = performance.now() - sentAt;
    for (const { remainingMs } of [first, held])
      assert.ok(remainingMs >= context.scaleLease(4_000) * 0.74 - passed, `${remainingMs} ms are left`);
    await client.release(claim);
  });

  test("a step of this process's wall clock ends no lease and lengthens none", async (context) => {
    const client = await context.openClient();
    const [kept, brief] = [context.createClaim("kept"), context.createClaim("brief", { ttlMs: context.shortLeaseMs })];
    const next = context.createClaim("brief");
    await withWallClock(-1, () => client.claimHeld(brief));
    await client.claimWaiting(next);
    await client.claimHeld(kept);
    assert.equal((await withWallClock(1, () => client.renew(kept))).state, "held");
    assert.equal((await withWallClock(-1, () => client.renew(kept))).state, "held");
    assert.ok(!(await withWallClock(1, () => client.isFree("kept"))));
    await client.waitForGrant(next);
    await client.release(kept, next);
  });
}

/** Runs with this process's wall clock shifted by some hours. */
async function withWallClock<T>(hours: number, work: () => Promise<T>): Promise<T> {
  const real = Date.now;
  Date.now = () => real() + hours * 3_600_000;
  try {
    return await work();
  } finally {
    Date.now = real;
  }
}
