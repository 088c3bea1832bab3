/** One claim over several keys: line after line in key order, all or nothing. */

import assert from "node:assert/strict";
import type { Claim } from "../../spi/driver.ts";
import { randomOf } from "../random.ts";
import type { Client, Scene } from "../scene.ts";
import { exclusive, heldOf, shared } from "../scene.ts";
import type { Check, Subject } from "../subject.ts";

export function manyKeys(check: Check, { traits }: Subject): void {
  if (!traits.manyKeys) return;

  check("a claim over several keys holds them all, and frees them all", async (scene) => {
    const client = await scene.client();
    const all = scene.claim(["d", "a", "c", "b"].map(exclusive));
    await client.hold(all);
    for (const key of ["a", "b", "c", "d"]) assert.ok(!(await client.isFree(key)));
    assert.equal((await client.driver.list({ prefix: "" }, 10)).length, 1);
    assert.deepEqual(await client.release(all), [true]);
    for (const key of ["a", "b", "c", "d"]) assert.ok(await client.isFree(key));
  });

  check("a claim may have 128 keys", async (scene) => {
    const client = await scene.client();
    const keys = Array.from({ length: 128 }, (_, index) => `key ${index}`);
    const all = scene.claim(keys.map(exclusive));
    const next = scene.claim(keys.slice(60, 70).map(exclusive));
    await client.hold(all);
    await client.queue(next);
    assert.ok(!(await client.isFree("key 127")));
    assert.deepEqual(await client.release(all), [true]);
    await client.granted(next);
    assert.ok(await client.isFree("key 127"));
    await client.release(next);
  });

  check("a claim over several keys with wait: false takes all or leaves no trace", async (scene) => {
    const client = await scene.client();
    for (const busy of ["a", "b", "c"]) {
      const holder = scene.claim(busy);
      await client.hold(holder);
      const refused = scene.claim(["a", "b", "c"].map(exclusive), { wait: false });
      assert.equal((await client.claim(refused)).state, "none");
      assert.equal((await client.driver.list({ prefix: "" }, 10)).length, 1);
      for (const key of ["a", "b", "c"]) assert.equal(await client.isFree(key), key !== busy);
      await client.release(holder);
    }
  });

  check("lines are entered in key order: a waiting claim blocks no later key", async (scene) => {
    const client = await scene.client();
    const [first, all] = [scene.claim("b"), scene.claim(["a", "b", "c"].map(exclusive))];
    await client.hold(first);
    await client.queue(all);
    assert.ok(!(await client.isFree("a")), "the keys before the busy one are taken");
    assert.ok(await client.isFree("c"), "the keys behind it are not");
    assert.equal((await client.ask(all)).state, "waiting");
    await client.release(first);
    await client.granted(all);
    assert.ok(!(await client.isFree("c")));
    await client.release(all);
  });

  check("a claim that waits for its second key stands in that line by the time it came there", async (scene) => {
    const client = await scene.client();
    const [a, b] = [scene.claim("a"), scene.claim("b")];
    const [both, later] = [scene.claim([exclusive("a"), exclusive("b")]), scene.claim("b")];
    await client.hold(a);
    await client.hold(b);
    await client.queue(both);
    await client.queue(later);
    await client.release(a);
    await scene.until("the first key to be taken", async () => {
      await client.ask(both);
      return !(await client.isFree("a"));
    });
    await client.release(b);
    if (traits.fifo) {
      await client.granted(later);
      assert.equal((await client.ask(both)).state, "waiting");
    }
    await scene.until("both", async () => {
      if ((await client.ask(later)).state === "held") await client.release(later);
      return (await client.ask(both)).state === "held";
    });
    await client.release(both, later);
  });

  check("a waiting claim over several keys that is released leaves every line it was in", async (scene) => {
    const client = await scene.client();
    const [b, all, next] = [scene.claim("b"), scene.claim(["a", "b", "c"].map(exclusive)), scene.claim("a")];
    await client.hold(b);
    await client.queue(all);
    await client.queue(next);
    assert.deepEqual(await client.release(all), [true]);
    await client.granted(next);
    await client.release(b, next);
    for (const key of ["a", "b", "c"]) assert.ok(await client.isFree(key));
  });

  if (traits.permits !== "one") {
    check("each key of a claim has its own permits", async (scene) => {
      const client = await scene.client();
      const mixed = scene.claim([shared("a"), exclusive("b")]);
      await client.hold(mixed);
      assert.ok(await client.isFree("a", { permits: 1 }));
      assert.ok(!(await client.isFree("a")));
      assert.ok(!(await client.isFree("b", { permits: 1 })));
      const [all, a] = [scene.claim([exclusive("a"), exclusive("b")]), scene.claim("a", { permits: 1 })];
      await client.queue(all);
      await client.queue(a);
      await client.release(mixed);
      await client.granted(all);
      await client.release(all);
      await client.granted(a);
      await client.release(a);
    });
  }

  check("claims over random keys from several clients never deadlock and never overlap", roundDance);

  if (traits.fencing) {
    check("the token of several keys lies above each key's tokens, and they go on above it", async (scene) => {
      const client = await scene.client();
      const last = { a: 0n, b: 0n };
      const grant = async (keys: readonly ("a" | "b")[], tokens: number): Promise<void> => {
        const claim = scene.claim(keys.map(exclusive), { tokens });
        const held = await client.hold(claim);
        await client.release(claim);
        for (const key of keys) {
          assert.ok(held.token > last[key], `the token of ${keys.join("+")} lies above those of ${key}`);
          last[key] = held.token + BigInt(held.tokens) - 1n;
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

  check("a claim over several keys that runs out frees them all", async (scene) => {
    const client = await scene.client();
    const all = scene.claim([exclusive("a"), exclusive("b")], { ttlMs: scene.brief });
    const [a, b] = [scene.claim("a"), scene.claim("b")];
    await client.hold(all);
    await client.queue(a);
    await client.queue(b);
    await client.granted(a);
    await client.granted(b);
    assert.equal((await client.ask(all)).state, "none");
    await client.release(a, b);
  });
}

async function roundDance(scene: Scene): Promise<void> {
  const clients = [await scene.client(), await scene.client(), await scene.client()];
  const keys = ["a", "b", "c", "d"];
  const random = randomOf(7);
  const inside = new Map<string, Claim>();
  const dance = async (client: Client): Promise<void> => {
    for (let round = 0; round < 15; round++) {
      const wanted = keys.filter(() => random.chance(0.6));
      const claim = scene.claim((wanted.length === 0 ? keys : wanted).map(exclusive));
      const answer = await client.claim(claim);
      if (answer.state === "held") heldOf(answer, claim);
      else await client.granted(claim);
      for (const { key } of claim.holds) {
        assert.equal(inside.get(key), undefined, "two hold one key");
        inside.set(key, claim);
      }
      await scene.pause(1);
      for (const { key } of claim.holds) inside.delete(key);
      await client.release(claim);
    }
  };
  await Promise.all(clients.map(dance));
}
