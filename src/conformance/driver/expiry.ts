/** Leases that nobody renews end, and no others do. */

import assert from "node:assert/strict";
import type { Claim } from "../../spi/driver.ts";
import type { Client } from "../scene.ts";
import { heldOf } from "../scene.ts";
import type { Check, Subject } from "../subject.ts";

/** Clock rates may differ by 1 %, and clocks tick in milliseconds. */
const early = (ms: number): number => ms * 0.99 - 2;

export function expiry(check: Check, { traits }: Subject): void {
  if (!traits.lease.claim) return;

  check("the next waiter is granted when the holder's lease ends, not before", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    const [holder, waiter] = [scene.claim("key", { ttlMs: scene.brief }), scene.claim("key")];
    const sentAt = performance.now();
    await one.hold(holder);
    const { recheckMs } = await other.queue(waiter);
    assert.ok(recheckMs > 0 && Number.isFinite(recheckMs));
    await other.granted(waiter);
    assert.ok(performance.now() - sentAt >= early(scene.brief), "the lease lasted its full length");
    await other.release(waiter);
  });

  check("a waiter that asks when it was told to is granted soon after the holder's lease ends", async (scene) => {
    const client = await scene.client();
    const [holder, waiter] = [scene.claim("key", { ttlMs: scene.brief }), scene.claim("key")];
    await client.hold(holder);
    let answer = await client.claim(waiter);
    const sentAt = performance.now();
    while (answer.state === "waiting") {
      assert.ok(performance.now() - sentAt < scene.ms(3_000), "recheckMs leads to the grant in time");
      await scene.pause(answer.recheckMs);
      answer = await client.ask(waiter);
    }
    heldOf(answer, waiter);
    await client.release(waiter);
  });

  check("an expired holder is answered none, and its release false", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    const [expired, next] = [scene.claim("key", { ttlMs: scene.brief }), scene.claim("key")];
    await one.hold(expired);
    await other.queue(next);
    await other.granted(next);
    assert.equal((await one.ask(expired)).state, "none");
    assert.deepEqual(await one.release(expired), [false]);
    assert.equal(
      (await other.ask(next)).state,
      "held",
      "the late release of an expired claim frees nobody else's lock",
    );
    await other.release(next);
  });

  check("an expired claim leaves nothing, although nobody comes after it", async (scene) => {
    const client = await scene.client();
    const claim = scene.claim("key", { ttlMs: scene.brief });
    await client.hold(claim);
    await scene.until("an empty list", async () => (await client.driver.list({ prefix: "" }, 10)).length === 0);
    assert.equal((await client.ask(claim)).state, "none");
    assert.ok(await client.isFree("key"));
  });

  for (const verb of ["claim", "renew"] as const) {
    check(`a lease that is restarted by ${verb} does not end`, async (scene) => {
      const [one, other] = [await scene.client(), await scene.client()];
      const [holder, waiter] = [scene.claim("key", { ttlMs: scene.brief }), scene.claim("key", { ttlMs: scene.brief })];
      await one.hold(holder);
      await other.queue(waiter);
      const again = (client: Client, claim: Claim) => (verb === "claim" ? client.claim(claim) : client.ask(claim));
      const end = performance.now() + 1.6 * scene.brief;
      await scene.until("a lease and a half to pass", async () => {
        assert.equal((await again(one, holder)).state, "held");
        assert.equal((await again(other, waiter)).state, "waiting");
        await scene.pause(scene.brief / 10);
        return performance.now() >= end;
      });
      await other.release(waiter);
      await one.release(holder);
    });
  }

  check("a waiting claim that nobody renews loses its place, and the next moves up", async (scene) => {
    const client = await scene.client();
    const [holder, quiet, next] = [scene.claim("key"), scene.claim("key", { ttlMs: scene.brief }), scene.claim("key")];
    await client.hold(holder);
    await client.queue(quiet);
    await client.queue(next);
    await scene.until(
      "the end of the quiet one",
      async () => (await client.driver.list({ prefix: "" }, 10)).length === 2,
    );
    assert.equal((await client.ask(quiet)).state, "none");
    assert.equal((await client.ask(next)).state, "waiting");
    await client.release(holder);
    await client.granted(next);
    await client.release(next);
  });

  check("an answer tells what is left of the lease by then", async (scene) => {
    const client = await scene.client();
    const claim = scene.claim("key", { ttlMs: scene.lease(4_000) });
    const sentAt = performance.now();
    const first = await client.hold(claim);
    const held = heldOf(await client.ask(claim), claim);
    const passed = performance.now() - sentAt;
    for (const { ttlMs } of [first, held])
      assert.ok(ttlMs >= scene.lease(4_000) * 0.74 - passed, `${ttlMs} ms are left`);
    await client.release(claim);
  });

  check("a step of this process's wall clock ends no lease and lengthens none", async (scene) => {
    const client = await scene.client();
    const [kept, brief] = [scene.claim("kept"), scene.claim("brief", { ttlMs: scene.brief })];
    const next = scene.claim("brief");
    await atHour(-1, () => client.hold(brief));
    await client.queue(next);
    await client.hold(kept);
    assert.equal((await atHour(1, () => client.ask(kept))).state, "held");
    assert.equal((await atHour(-1, () => client.ask(kept))).state, "held");
    assert.ok(!(await atHour(1, () => client.isFree("kept"))));
    await client.granted(next);
    await client.release(kept, next);
  });
}

/** Runs with this process's wall clock some hours off. */
async function atHour<T>(hours: number, work: () => Promise<T>): Promise<T> {
  const real = Date.now;
  Date.now = () => real() + hours * 3_600_000;
  try {
    return await work();
  } finally {
    Date.now = real;
  }
}
