/** Asking again is the same claim; a call that comes too late does nothing. */

import assert from "node:assert/strict";
import { exclusive, heldOf } from "../scene.ts";
import type { Check, Subject } from "../subject.ts";

export function idempotence(check: Check, { traits }: Subject): void {
  check("asking again with the same id is the same grant: same token, same run", async (scene) => {
    const client = await scene.client();
    const claim = scene.claim("key", { tokens: 8 });
    const first = await client.hold(claim);
    for (const answer of [await client.claim(claim), await client.ask(claim), await client.claim(claim)]) {
      const again = heldOf(answer, claim);
      assert.equal(again.token, first.token);
      assert.equal(again.tokens, first.tokens);
    }
    assert.deepEqual(await client.release(claim), [true]);
    assert.ok(await client.isFree("key"), "however often it was asked for, it is released once");
  });

  check("a claim that is sent twice at once has one place", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    const [holder, waiter] = [scene.claim("key"), scene.claim("key")];
    const held = await Promise.all([one.claim(holder), one.claim(holder)]);
    assert.equal(heldOf(held[0], holder).token, heldOf(held[1], holder).token);
    const waiting = await Promise.all([other.claim(waiter), other.claim(waiter)]);
    assert.deepEqual(
      waiting.map(({ state }) => state),
      ["waiting", "waiting"],
    );
    assert.equal((await one.driver.list({ prefix: "" }, 10)).length, 2);
    await one.release(holder);
    await other.granted(waiter);
    await other.release(waiter);
    assert.ok(await one.isFree("key"));
  });

  check("of two releases at once at most one answers true", async (scene) => {
    const client = await scene.client();
    const claim = scene.claim("key");
    await client.hold(claim);
    const answers = await Promise.all([client.release(claim), client.release(claim)]);
    assert.equal(answers.flat().filter(Boolean).length, 1);
  });

  check("a release with an unanswered claim call makes a late one answer none", async (scene) => {
    const client = await scene.client();
    const [held, waiting, never] = [scene.claim("key"), scene.claim("key"), scene.claim("other")];
    await client.hold(held);
    await client.queue(waiting);
    const claims = [held, waiting, never];
    const there = await client.driver.release(claims, new Set(claims.map(({ id }) => id)));
    assert.deepEqual(there, [true, true, false]);
    for (const claim of [...claims, ...claims]) {
      assert.equal((await client.claim(claim)).state, "none");
      assert.equal((await client.ask(claim)).state, "none");
    }
    assert.deepEqual(await client.driver.list({ prefix: "" }, 10), []);
    assert.ok(await client.isFree("key"));
    assert.ok(await client.isFree("other"));
    assert.deepEqual(await client.release(...claims), [false, false, false]);
    assert.equal((await client.claim(never)).state, "none", "a plain release does not make the store forget it");
  });

  check("only the ids named as unanswered are remembered, and only for themselves", async (scene) => {
    const client = await scene.client();
    const [buried, other] = [scene.claim("key"), scene.claim("other")];
    await client.hold(buried);
    await client.hold(other);
    await client.driver.release([buried, other], new Set([buried.id]));
    const next = scene.claim("key");
    await client.hold(next);
    assert.equal((await client.claim(buried)).state, "none");
    assert.equal((await client.driver.list({ prefix: "" }, 10)).length, 1);
    assert.deepEqual(await client.release(next), [true]);
    assert.ok(await client.isFree("other"));
  });

  if (traits.manyKeys) {
    check("a late claim of several keys that was given up enters none of their lines", async (scene) => {
      const client = await scene.client();
      const both = scene.claim([exclusive("a"), exclusive("b")]);
      await client.driver.release([both], new Set([both.id]));
      assert.equal((await client.claim(both)).state, "none");
      assert.ok(await client.isFree("a"));
      assert.ok(await client.isFree("b"));
    });
  }

  if (!traits.lease.claim) return;

  check("an id given up while unanswered is remembered for the length of its lease", async (scene) => {
    const client = await scene.client();
    const claim = scene.claim("key", { ttlMs: scene.brief });
    const sentAt = performance.now();
    await client.driver.release([claim], new Set([claim.id]));
    await scene.pause(scene.brief * 0.6);
    const answer = await client.claim(claim);
    // if the machine stood still, the store was right to forget it
    if (performance.now() - sentAt < scene.brief * 0.95) assert.equal(answer.state, "none");
    await client.release(claim);
  });
}
