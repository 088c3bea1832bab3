/** A claim's id is all that is needed to take it up elsewhere. */

import assert from "node:assert/strict";
import type { Driver } from "../../spi/driver.ts";
import { heldOf } from "../scene.ts";
import type { Check, Subject } from "../subject.ts";

export function detaching(check: Check, { traits, verbs }: Subject): void {
  if (!traits.lease.claim) return;
  const detaches = verbs.includes("detach");

  /** Stores without sessions need no detaching: there a claim belongs to whoever knows its id. */
  async function detach(driver: Driver, ...claims: Parameters<NonNullable<Driver["detach"]>>[0]): Promise<void> {
    if (driver.detach !== undefined) assert.ok((await driver.detach(claims)).every(Boolean));
  }

  check("a detached claim outlives its client, and another one renews and releases it", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    const [claim, next] = [scene.claim("key", { tokens: 5 }), scene.claim("key")];
    const { token, tokens } = await one.hold(claim);
    await detach(one.driver, claim);
    await one.driver.close();
    await other.queue(next);
    const taken = heldOf(await other.ask(claim), claim);
    assert.deepEqual([taken.token, taken.tokens], [token, tokens]);
    assert.deepEqual(await other.release(claim), [true]);
    assert.ok((await other.granted(next)).token > token || !traits.fencing);
    await other.release(next);
  });

  check("a detached claim that nobody takes up ends with its lease", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    const [claim, next] = [scene.claim("key", { ttlMs: scene.brief }), scene.claim("key")];
    await one.hold(claim);
    await detach(one.driver, claim);
    await one.driver.close();
    await other.queue(next);
    await other.granted(next);
    assert.equal((await other.ask(claim)).state, "none");
    await other.release(next);
  });

  if (!detaches) return;

  check("only held claims are detached", async (scene) => {
    const client = await scene.client();
    const [held, waiting, unknown] = [scene.claim("key"), scene.claim("key"), scene.claim("key")];
    await client.hold(held);
    await client.queue(waiting);
    assert.deepEqual(await client.driver.detach?.([waiting, held, unknown]), [false, true, false]);
    await client.release(waiting, held);
  });

  check("a detached claim ends when it was told to, and a renewal restarts its full lease", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    const [short, renewed] = [scene.claim("short", { ttlMs: 60_000 }), scene.claim("renewed", { ttlMs: 60_000 })];
    const next = scene.claim("short");
    await one.hold(short);
    await one.hold(renewed);
    assert.deepEqual(await one.driver.detach?.([short, renewed], scene.brief), [true, true]);
    await one.driver.close();
    await other.queue(next);
    const again = heldOf(await other.ask(renewed), renewed);
    assert.ok(again.ttlMs > scene.brief, `a renewal restarts the full lease, not ${again.ttlMs} ms`);
    await other.granted(next);
    assert.deepEqual(await other.ask(short), { state: "none", reason: "expired" });
    await other.release(next, renewed);
  });

  check("a detached claim has never more than its own lease left", async (scene) => {
    const client = await scene.client();
    const claim = scene.claim("key", { ttlMs: 60_000 });
    await client.hold(claim);
    assert.deepEqual(await client.driver.detach?.([claim], 3_600_000), [true]);
    const [view] = await client.driver.list({ key: "key" }, 1);
    assert.ok(view?.answer.state === "held" && view.answer.ttlMs <= 60_000);
    await client.release(claim);
  });

  check("an ended detached claim says how it ended", async (scene) => {
    const client = await scene.client();
    const [released, expired] = [scene.claim("released"), scene.claim("expired", { ttlMs: scene.brief })];
    await client.hold(released);
    await client.hold(expired);
    await detach(client.driver, released, expired);
    await client.release(released);
    assert.deepEqual(await client.ask(released), { state: "none", reason: "released" });
    await scene.until(
      "the end of its lease",
      async () => (await client.driver.list({ prefix: "expired" }, 1)).length === 0,
    );
    assert.deepEqual(await client.ask(expired), { state: "none", reason: "expired" });
  });
}
