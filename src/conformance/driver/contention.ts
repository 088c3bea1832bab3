/** Several clients want one key. */

import assert from "node:assert/strict";
import type { Claim } from "../../spi/driver.ts";
import type { Client, Scene } from "../scene.ts";
import { heldOf } from "../scene.ts";
import type { Check, Subject } from "../subject.ts";

export function contention(check: Check, subject: Subject): void {
  check("a claim of a busy key waits, and is granted when the key is released", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    const [first, second] = [scene.claim("key"), scene.claim("key")];
    await one.hold(first);
    const { recheckMs, ttlMs } = await other.queue(second);
    assert.ok(recheckMs > 0 && Number.isFinite(recheckMs), "a waiting claim is told when to ask again");
    assert.ok(ttlMs > 0);
    assert.equal((await other.ask(second)).state, "waiting");
    await one.release(first);
    await other.granted(second);
    assert.equal((await one.ask(first)).state, "none");
    assert.deepEqual(await other.release(second), [true]);
  });

  check("what is pushed is what asking tells, and goes to the client that asked", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    const [first, second] = [scene.claim("key"), scene.claim("key")];
    await one.hold(first);
    await other.queue(second);
    await one.release(first);
    const { token } = await other.granted(second);
    // a push may be late or lost: whatever comes until all is over must have been true
    await other.release(second);
    await scene.pause(20);
    for (const { id, answer } of other.pushes) {
      assert.ok(id === null || id === second.id, "a client hears only of its own claims");
      if (answer?.state === "held") assert.equal(answer.token, token);
    }
    for (const { id } of one.pushes) assert.ok(id === null || id === first.id, "ids are secrets");
  });

  check("wait: false on a busy key leaves no trace", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    const [first, refused] = [scene.claim("key"), scene.claim("key", { wait: false })];
    await one.hold(first);
    assert.deepEqual(await other.claim(refused), { state: "none" });
    assert.equal((await one.driver.list({ prefix: "" }, 10)).length, 1);
    assert.equal((await other.ask(refused)).state, "none");
    assert.deepEqual(await other.release(refused), [false]);
    await one.release(first);
    assert.deepEqual(await one.driver.list({ prefix: "" }, 10), []);
    assert.equal((await other.ask(refused)).state, "none");
  });

  check("a waiting claim that is released leaves the line, and those behind it move up", async (scene) => {
    const client = await scene.client();
    const [first, second, third] = [scene.claim("key"), scene.claim("key"), scene.claim("key")];
    await client.hold(first);
    await client.queue(second);
    await client.queue(third);
    assert.deepEqual(await client.release(second), [true]);
    assert.equal((await client.ask(second)).state, "none");
    assert.equal((await client.ask(third)).state, "waiting");
    await client.release(first);
    await client.granted(third);
    assert.equal((await client.ask(second)).state, "none");
    await client.release(third);
  });

  check("of many that come at once one is granted, and the others after it, one at a time", async (scene) => {
    const clients = [await scene.client(), await scene.client(), await scene.client()];
    const claims = Array.from({ length: 24 }, (_, index) => ({
      claim: scene.claim("key"),
      client: clients[index % clients.length] as Client,
    }));
    const answers = await Promise.all(claims.map(({ claim, client }) => client.claim(claim)));
    assert.equal(answers.filter(({ state }) => state === "held").length, 1);
    assert.equal(answers.filter(({ state }) => state === "waiting").length, claims.length - 1);
    let left = claims;
    while (left.length > 0) {
      const granted = await scene.until("one holder", () => oneHeld(left));
      await granted.client.release(granted.claim);
      left = left.filter((other) => other !== granted);
    }
  });

  check("a grant between asking and waiting is not missed", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    for (let round = 0; round < 50; round++) {
      const [first, second] = [scene.claim("key"), scene.claim("key")];
      await one.hold(first);
      const [, answer] = await Promise.all([one.release(first), other.claim(second)]);
      assert.notEqual(answer.state, "none");
      await other.granted(second);
      await other.release(second);
    }
  });

  check("who reads and writes a value only under the lock loses no write", (scene) => counting(scene, subject));
}

async function oneHeld(
  claims: readonly { claim: Claim; client: Client }[],
): Promise<{ claim: Claim; client: Client } | undefined> {
  const answers = await Promise.all(claims.map(({ claim, client }) => client.ask(claim)));
  const held = claims.filter((_, index) => answers[index]?.state === "held");
  assert.ok(held.length <= 1, "two hold one exclusive key");
  assert.ok(
    answers.every(({ state }) => state !== "none"),
    "nobody loses its place",
  );
  return held[0];
}

async function counting(scene: Scene, { traits }: Subject): Promise<void> {
  const clients = [await scene.client(), await scene.client(), await scene.client()];
  const rounds = 12;
  let value = 0;
  let lastToken = 0n;
  await Promise.all(
    clients.map(async (client) => {
      for (let round = 0; round < rounds; round++) {
        const claim = scene.claim("key");
        const answer = await client.claim(claim);
        const { token } = answer.state === "held" ? heldOf(answer, claim) : await client.granted(claim);
        const read = value;
        if (traits.fencing) assert.ok(token > lastToken, "tokens rise from holder to holder");
        lastToken = token;
        await scene.pause(1);
        value = read + 1;
        await client.release(claim);
      }
    }),
  );
  assert.equal(value, clients.length * rounds);
}
