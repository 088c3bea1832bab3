/** A claim of several keys: it enters their queues one after another in key order, and holds all keys or none. */

import assert from "node:assert/strict";
import type { Claim } from "../../spi/driver.ts";
import { createRandom } from "../../testing/random.ts";
import type { DefineTest, DriverClient, TestContext } from "../context.ts";
import { assertHeld, exclusive, shared } from "../context.ts";
import type { ConformanceSettings } from "../options.ts";

export function testMultiKey(test: DefineTest, { traits }: ConformanceSettings): void {
  if (!traits.manyKeys) return;

  test("a claim over several keys holds them all, and frees them all", async (context) => {
    const client = await context.openClient();
    const all = context.createClaim(["d", "a", "c", "b"].map(exclusive));
    await client.claimHeld(all);
    for (const key of ["a", "b", "c", "d"]) assert.ok(!(await client.isFree(key)));
    assert.equal((await client.driver.list({ prefix: "" }, { max: 10 })).items.length, 1);
    assert.deepEqual(await client.release(all), [true]);
    for (const key of ["a", "b", "c", "d"]) assert.ok(await client.isFree(key));
  });

  test("a claim may have 128 keys", async (context) => {
    const client = await context.openClient();
    const keys = Array.from({ length: 128 }, (_, index) => `key ${index}`);
    const all = context.createClaim(keys.map(exclusive));
    const next = context.createClaim(keys.slice(60, 70).map(exclusive));
    await client.claimHeld(all);
    await client.claimWaiting(next);
    assert.ok(!(await client.isFree("key 127")));
    assert.deepEqual(await client.release(all), [true]);
    await client.waitForGrant(next);
    assert.ok(await client.isFree("key 127"));
    await client.release(next);
  });

  test("a claim over several keys with wait: false takes all or leaves no trace", async (context) => {
    const client = await context.openClient();
    for (const busy of ["a", "b", "c"]) {
      const holder = context.createClaim(busy);
      await client.claimHeld(holder);
      const refused = context.createClaim(["a", "b", "c"].map(exclusive), { wait: false });
      assert.equal((await client.claim(refused)).state, "none");
      assert.equal((await client.driver.list({ prefix: "" }, { max: 10 })).items.length, 1);
      for (const key of ["a", "b", "c"]) assert.equal(await client.isFree(key), key !== busy);
      await client.release(holder);
    }
  });

  test("queues are entered in key order: a waiting claim blocks no later key", async (context) => {
    const client = await context.openClient();
    const [first, all] = [context.createClaim("b"), context.createClaim(["a", "b", "c"].map(exclusive))];
    await client.claimHeld(first);
    await client.claimWaiting(all);
    assert.ok(!(await client.isFree("a")), "the keys before the busy one are taken");
    assert.ok(await client.isFree("c"), "the keys after it are not");
    assert.equal((await client.renew(all)).state, "waiting");
    await client.release(first);
    await client.waitForGrant(all);
    assert.ok(!(await client.isFree("c")));
    await client.release(all);
  });

  test("a claim that waits for its second key is in that queue in order of its arrival there", async (context) => {
    const client = await context.openClient();
    const [a, b] = [context.createClaim("a"), context.createClaim("b")];
    const [both, later] = [context.createClaim([exclusive("a"), exclusive("b")]), context.createClaim("b")];
    await client.claimHeld(a);
    await client.claimHeld(b);
    await client.claimWaiting(both);
    await client.claimWaiting(later);
    await client.release(a);
    await context.waitUntil("the first key to be taken", async () => {
      await client.renew(both);
      return !(await client.isFree("a"));
    });
    await client.release(b);
    if (traits.fifo) {
      await client.waitForGrant(later);
      assert.equal((await client.renew(both)).state, "waiting");
    }
    await context.waitUntil("both", async () => {
      if ((await client.renew(later)).state === "held") await client.release(later);
      return (await client.renew(both)).state === "held";
    });
    await client.release(both, later);
  });

  test("a waiting claim over several keys that is released leaves all its queues", async (context) => {
    const client = await context.openClient();
    const [b, all, next] = [
      context.createClaim("b"),
      context.createClaim(["a", "b", "c"].map(exclusive)),
      context.createClaim("a"),
    ];
    await client.claimHeld(b);
    await client.claimWaiting(all);
    await client.claimWaiting(next);
    assert.deepEqual(await client.release(all), [true]);
    await client.waitForGrant(next);
    await client.release(b, next);
    for (const key of ["a", "b", "c"]) assert.ok(await client.isFree(key));
  });

  if (traits.permits !== "one") {
    test("each key of a claim has its own permits", async (context) => {
      const client = await context.openClient();
      const mixed = context.createClaim([shared("a"), exclusive("b")]);
      await client.claimHeld(mixed);
      assert.ok(await client.isFree("a", { permits: 1 }));
      assert.ok(!(await client.isFree("a")));
      assert.ok(!(await client.isFree("b", { permits: 1 })));
      const [all, a] = [
        context.createClaim([exclusive("a"), exclusive("b")]),
        context.createClaim("a", { permits: 1 }),
      ];
      await client.claimWaiting(all);
      await client.claimWaiting(a);
      await client.release(mixed);
      await client.waitForGrant(all);
      await client.release(all);
      await client.waitForGrant(a);
      await client.release(a);
    });
  }

  test("claims over random keys from several clients never deadlock and never overlap", testOverlappingKeys);

  if (traits.fencing) {
    test("the token of several keys lies above each key's tokens, and they go on above it", async (context) => {
      const client = await context.openClient();
      const last = { a: 0n, b: 0n };
      const grant = async (keys: readonly ("a" | "b")[], tokenCount: number): Promise<void> => {
        const claim = context.createClaim(keys.map(exclusive), { tokenCount });
        const held = await client.claimHeld(claim);
        await client.release(claim);
        for (const key of keys) {
          assert.ok(held.token > last[key], `the token of ${keys.join("+")} is above those of ${key}`);
          last[key] = held.token + BigInt(held.tokenCount) - 1n;
        }
      };
      await grant(["a"], 1);
      await grant(["b"], 200);
      await grant(["a", "b"], 100);
      await grant(["a"], 1);
      await grant(["b"], 1);
      await grant(["a", "b"], 1);
    });
  }

  if (!traits.lease.claim) return;

  test("a claim over several keys that expires frees them all", async (context) => {
    const client = await context.openClient();
    const all = context.createClaim([exclusive("a"), exclusive("b")], { ttlMs: context.shortLeaseMs });
    const [a, b] = [context.createClaim("a"), context.createClaim("b")];
    await client.claimHeld(all);
    await client.claimWaiting(a);
    await client.claimWaiting(b);
    await client.waitForGrant(a);
    await client.waitForGrant(b);
    assert.equal((await client.renew(all)).state, "none");
    await client.release(a, b);
  });
}

async function testOverlappingKeys(context: TestContext): Promise<void> {
  const clients = [await context.openClient(), await context.openClient(), await context.openClient()];
  const keys = ["a", "b", "c", "d"];
  const random = createRandom(7);
  const holders = new Map<string, Claim>();
  const runClient = async (client: DriverClient): Promise<void> => {
    for (let round = 0; round < 15; round++) {
      const wanted = keys.filter(() => random.chance(0.6));
      const claim = context.createClaim((wanted.length === 0 ? keys : wanted).map(exclusive));
      const answer = await client.claim(claim);
      if (answer.state === "held") assertHeld(answer, claim);
      else await client.waitForGrant(claim);
      for (const { key } of claim.locks) {
        assert.equal(holders.get(key), undefined, "two claims hold one key");
        holders.set(key, claim);
      }
      await context.sleep(1);
      for (const { key } of claim.locks) holders.delete(key);
      await client.release(claim);
    }
  };
  await Promise.all(clients.map(runClient));
}
