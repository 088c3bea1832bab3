/** Several clients compete for one key. */

import assert from "node:assert/strict";
import type { Claim } from "../../spi/driver.ts";
import type { DefineTest, DriverClient, TestContext } from "../context.ts";
import { assertHeld } from "../context.ts";
import type { ConformanceSettings } from "../options.ts";

export function testContention(test: DefineTest, settings: ConformanceSettings): void {
  test("a claim of a busy key waits, and is granted when the key is released", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [first, second] = [context.createClaim("key"), context.createClaim("key")];
    await clientA.claimHeld(first);
    const { recheckMs, remainingMs } = await clientB.claimWaiting(second);
    assert.ok(recheckMs > 0 && Number.isFinite(recheckMs), "a waiting claim gets a time to recheck");
    assert.ok(remainingMs > 0);
    assert.equal((await clientB.renew(second)).state, "waiting");
    await clientA.release(first);
    await clientB.waitForGrant(second);
    assert.equal((await clientA.renew(first)).state, "none");
    assert.deepEqual(await clientB.release(second), [true]);
  });

  test("what is pushed is what asking tells, and goes to the client that asked", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [first, second] = [context.createClaim("key"), context.createClaim("key")];
    await clientA.claimHeld(first);
    await clientB.claimWaiting(second);
    await clientA.release(first);
    const { token } = await clientB.waitForGrant(second);
    // a push may be late or lost: every push until the end must have been true
    await clientB.release(second);
    await context.sleep(20);
    for (const { id, answer } of clientB.pushes) {
      assert.ok(id === null || id === second.id, "a client gets pushes only for its own claims");
      if (answer?.state === "held") assert.equal(answer.token, token);
    }
    for (const { id } of clientA.pushes) assert.ok(id === null || id === first.id, "ids are secrets");
  });

  test("wait: false on a busy key leaves no trace", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [first, refused] = [context.createClaim("key"), context.createClaim("key", { wait: false })];
    await clientA.claimHeld(first);
    assert.deepEqual(await clientB.claim(refused), { state: "none" });
    assert.equal((await clientA.driver.list({ prefix: "" }, { max: 10 })).items.length, 1);
    assert.equal((await clientB.renew(refused)).state, "none");
    assert.deepEqual(await clientB.release(refused), [false]);
    await clientA.release(first);
    assert.deepEqual((await clientA.driver.list({ prefix: "" }, { max: 10 })).items, []);
    assert.equal((await clientB.renew(refused)).state, "none");
  });

  test("a waiting claim that is released leaves the queue, and later ones move up", async (context) => {
    const client = await context.openClient();
    const [first, second, third] = [context.createClaim("key"), context.createClaim("key"), context.createClaim("key")];
    await client.claimHeld(first);
    await client.claimWaiting(second);
    await client.claimWaiting(third);
    assert.deepEqual(await client.release(second), [true]);
    assert.equal((await client.renew(second)).state, "none");
    assert.equal((await client.renew(third)).state, "waiting");
    await client.release(first);
    await client.waitForGrant(third);
    assert.equal((await client.renew(second)).state, "none");
    await client.release(third);
  });

  test("of many that come at once one is granted, and the others after it, one at a time", async (context) => {
    const clients = [await context.openClient(), await context.openClient(), await context.openClient()];
    const claims = Array.from({ length: 24 }, (_, index) => ({
      claim: context.createClaim("key"),
      client: clients[index % clients.length] as DriverClient,
    }));
    const answers = await Promise.all(claims.map(({ claim, client }) => client.claim(claim)));
    assert.equal(answers.filter(({ state }) => state === "held").length, 1);
    assert.equal(answers.filter(({ state }) => state === "waiting").length, claims.length - 1);
    let left = claims;
    while (left.length > 0) {
      const granted = await context.waitUntil("one holder", () => findOnlyHeld(left));
      await granted.client.release(granted.claim);
      left = left.filter((item) => item !== granted);
    }
  });

  test("a grant between asking and waiting is not missed", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    for (let round = 0; round < 50; round++) {
      const [first, second] = [context.createClaim("key"), context.createClaim("key")];
      await clientA.claimHeld(first);
      const [, answer] = await Promise.all([clientA.release(first), clientB.claim(second)]);
      assert.notEqual(answer.state, "none");
      await clientB.waitForGrant(second);
      await clientB.release(second);
    }
  });

  test("who reads and writes a value only under the lock loses no write", (context) =>
    assertNoLostWrite(context, settings));
}

async function findOnlyHeld(
  claims: readonly { claim: Claim; client: DriverClient }[],
): Promise<{ claim: Claim; client: DriverClient } | undefined> {
  const answers = await Promise.all(claims.map(({ claim, client }) => client.renew(claim)));
  const held = claims.filter((_, index) => answers[index]?.state === "held");
  assert.ok(held.length <= 1, "two claims hold one exclusive key");
  assert.ok(
    answers.every(({ state }) => state !== "none"),
    "no claim loses its entry",
  );
  return held[0];
}

async function assertNoLostWrite(context: TestContext, { traits }: ConformanceSettings): Promise<void> {
  const clients = [await context.openClient(), await context.openClient(), await context.openClient()];
  const rounds = 12;
  let value = 0;
  let lastToken = 0n;
  await Promise.all(
    clients.map(async (client) => {
      for (let round = 0; round < rounds; round++) {
        const claim = context.createClaim("key");
        const answer = await client.claim(claim);
        const { token } = answer.state === "held" ? assertHeld(answer, claim) : await client.waitForGrant(claim);
        const read = value;
        if (traits.fencing) assert.ok(token > lastToken, "tokens rise from holder to holder");
        lastToken = token;
        await context.sleep(1);
        value = read + 1;
        await client.release(claim);
      }
    }),
  );
  assert.equal(value, clients.length * rounds);
}
