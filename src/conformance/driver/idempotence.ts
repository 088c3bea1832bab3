/** A repeated call is the same claim; a call that comes too late has no effect. */

import assert from "node:assert/strict";
import type { DefineTest } from "../context.ts";
import { assertHeld, exclusive } from "../context.ts";
import type { ConformanceSettings } from "../options.ts";

export function testIdempotence(test: DefineTest, { traits }: ConformanceSettings): void {
  test("asking again with the same id is the same grant: same token, same run", async (context) => {
    const client = await context.openClient();
    const claim = context.createClaim("key", { tokenCount: 8 });
    const first = await client.claimHeld(claim);
    for (const answer of [await client.claim(claim), await client.renew(claim), await client.claim(claim)]) {
      const again = assertHeld(answer, claim);
      assert.equal(again.token, first.token);
      assert.equal(again.tokenCount, first.tokenCount);
    }
    assert.deepEqual(await client.release(claim), [true]);
    assert.ok(await client.isFree("key"), "however often it was claimed, one release frees it");
  });

  test("a claim that is sent twice at once has one entry", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [holder, waiter] = [context.createClaim("key"), context.createClaim("key")];
    const held = await Promise.all([clientA.claim(holder), clientA.claim(holder)]);
    assert.equal(assertHeld(held[0], holder).token, assertHeld(held[1], holder).token);
    const waiting = await Promise.all([clientB.claim(waiter), clientB.claim(waiter)]);
    assert.deepEqual(
      waiting.map(({ state }) => state),
      ["waiting", "waiting"],
    );
    assert.equal((await context.listClaims()).length, 2);
    await clientA.release(holder);
    await clientB.waitForGrant(waiter);
    await clientB.release(waiter);
    assert.ok(await clientA.isFree("key"));
  });

  test("of two releases at once at most one answers true", async (context) => {
    const client = await context.openClient();
    const claim = context.createClaim("key");
    await client.claimHeld(claim);
    const answers = await Promise.all([client.release(claim), client.release(claim)]);
    assert.equal(answers.flat().filter(Boolean).length, 1);
  });

  test("a release with an unanswered claim call makes a late one answer none", async (context) => {
    const client = await context.openClient();
    const [held, waiting, never] = [
      context.createClaim("key"),
      context.createClaim("key"),
      context.createClaim("other"),
    ];
    await client.claimHeld(held);
    await client.claimWaiting(waiting);
    const claims = [held, waiting, never];
    const wereHeld = await client.driver.release(claims.map((claim) => ({ claim, hasUnansweredClaim: true })));
    assert.deepEqual(wereHeld, [true, true, false]);
    for (const claim of [...claims, ...claims]) {
      assert.equal((await client.claim(claim)).state, "none");
      assert.equal((await client.renew(claim)).state, "none");
    }
    assert.deepEqual((await client.driver.list({ prefix: "" }, { max: 10 })).items, []);
    assert.ok(await client.isFree("key"));
    assert.ok(await client.isFree("other"));
    assert.deepEqual(await client.release(...claims), [false, false, false]);
    assert.equal((await client.claim(never)).state, "none", "a plain release does not make the store forget it");
  });

  test("only the claims marked as unanswered are remembered, and only for themselves", async (context) => {
    const client = await context.openClient();
    const [tombstoned, other] = [context.createClaim("key"), context.createClaim("other")];
    await client.claimHeld(tombstoned);
    await client.claimHeld(other);
    await client.driver.release([
      { claim: tombstoned, hasUnansweredClaim: true },
      { claim: other, hasUnansweredClaim: false },
    ]);
    const next = context.createClaim("key");
    await client.claimHeld(next);
    assert.equal((await client.claim(tombstoned)).state, "none");
    assert.equal((await client.driver.list({ prefix: "" }, { max: 10 })).items.length, 1);
    assert.deepEqual(await client.release(next), [true]);
    assert.ok(await client.isFree("other"));
  });

  if (traits.manyKeys) {
    test("a late claim of several keys that was released enters none of their queues", async (context) => {
      const client = await context.openClient();
      const both = context.createClaim([exclusive("a"), exclusive("b")]);
      await client.driver.release([{ claim: both, hasUnansweredClaim: true }]);
      assert.equal((await client.claim(both)).state, "none");
      assert.ok(await client.isFree("a"));
      assert.ok(await client.isFree("b"));
    });
  }

  if (!traits.lease.claim) return;

  test("an id given up while unanswered is remembered for the length of its lease", async (context) => {
    const client = await context.openClient();
    const claim = context.createClaim("key", { ttlMs: context.shortLeaseMs });
    const sentAt = performance.now();
    await client.driver.release([{ claim, hasUnansweredClaim: true }]);
    await context.sleep(context.shortLeaseMs * 0.6);
    const answer = await client.claim(claim);
    // if the machine stalled, the store may have forgotten it
    if (performance.now() - sentAt < context.shortLeaseMs * 0.95) assert.equal(answer.state, "none");
    await client.release(claim);
  });
}
