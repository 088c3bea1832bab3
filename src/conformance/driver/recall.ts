/** Holders that asked for it learn that another claim waits for theirs. */

import assert from "node:assert/strict";
import type { Claim } from "../../spi/driver.ts";
import type { DefineTest, DriverClient, TestContext } from "../context.ts";
import { exclusive } from "../context.ts";
import type { ConformanceSettings } from "../options.ts";

/** A waiter behind a claim that can be recalled asks again at least this often at first. */
const MAX_FIRST_RECHECK_MS = 1_000;

/** Time for a push that must not come. */
const PUSH_MS = 20;

export function testRecall(test: DefineTest, settings: ConformanceSettings): void {
  const { traits } = settings;
  if (traits.recall === false) return;
  testAnswers(test, settings);
  testUnasked(test, settings);
  if (traits.recall === "push") testPushes(test, settings);
}

function testAnswers(test: DefineTest, { traits }: ConformanceSettings): void {
  test("the answer to a renewal says that another claim waits, and not before it does", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [holder, waiter] = [context.createClaim("key", { recall: true }), context.createClaim("key")];
    assert.notEqual((await clientA.claimHeld(holder)).recalled, true);
    assert.notEqual(await isRecalled(clientA, holder), true);
    await clientB.claimWaiting(waiter);
    await context.waitUntil("the recall in a renewal", () => isRecalled(clientA, holder));
    await clientA.release(holder);
    await clientB.waitForGrant(waiter);
    await clientB.release(waiter);
  });

  test("so does the answer to a claim that is repeated because its answer was lost", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [holder, waiter] = [context.createClaim("key", { recall: true }), context.createClaim("key")];
    await clientA.claimHeld(holder);
    assert.notEqual((await clientA.claimHeld(holder)).recalled, true);
    await clientB.claimWaiting(waiter);
    await context.waitUntil("the recall in an answer", async () => (await clientA.claimHeld(holder)).recalled === true);
    await clientA.release(holder);
    await clientB.waitForGrant(waiter);
    await clientB.release(waiter);
  });

  test("a claim that is granted while others wait behind it is recalled from its grant on", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [first, second] = [context.createClaim("key"), context.createClaim("key", { recall: true })];
    const third = context.createClaim("key");
    await clientA.claimHeld(first);
    await clientB.claimWaiting(second);
    await clientA.claimWaiting(third);
    await clientA.release(first);
    await clientB.waitForGrant(second);
    await context.waitUntil("the recall in a renewal", () => isRecalled(clientB, second));
    await clientB.release(second);
    await clientA.waitForGrant(third);
    await clientA.release(third);
  });

  if (!traits.manyKeys) return;

  test("a claim over several keys is recalled for each of them", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const holder = context.createClaim([exclusive("a"), exclusive("b"), exclusive("c")], { recall: true });
    for (const key of ["c", "a", "b"]) {
      await clientA.claimHeld(holder);
      const waiter = context.createClaim(key);
      await clientB.claimWaiting(waiter);
      await context.waitUntil(`the recall for ${key}`, () => isRecalled(clientA, holder));
      await clientB.release(waiter);
      await context.waitUntil("an end of the recall", async () => !(await isRecalled(clientA, holder)));
    }
    await clientA.release(holder);
  });
}

function testUnasked(test: DefineTest, { verbs }: ConformanceSettings): void {
  test("a claim that did not ask is not recalled", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [holder, waiter] = [context.createClaim("key"), context.createClaim("key")];
    await clientA.claimHeld(holder);
    await clientB.claimWaiting(waiter);
    await clientB.renew(waiter);
    await assertNotRecalled(context, clientA, holder);
    await clientA.release(holder);
    await clientB.waitForGrant(waiter);
    await clientB.release(waiter);
  });

  test("a claim that does not wait recalls no holder", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const holder = context.createClaim("key", { recall: true });
    await clientA.claimHeld(holder);
    assert.equal((await clientB.claim(context.createClaim("key", { wait: false }))).state, "none");
    await assertNotRecalled(context, clientA, holder);
    await clientA.release(holder);
  });

  if (verbs.includes("detach")) {
    test("a detached claim is not recalled", async (context) => {
      const [clientA, clientB] = [await context.openClient(), await context.openClient()];
      const [holder, waiter] = [context.createClaim("key", { recall: true }), context.createClaim("key")];
      await clientA.claimHeld(holder);
      assert.deepEqual(await clientA.driver.detach?.([holder]), [true]);
      await clientB.claimWaiting(waiter);
      await clientB.renew(waiter);
      await assertNotRecalled(context, clientA, holder);
      await clientB.release(holder);
      await clientB.waitForGrant(waiter);
      await clientB.release(waiter);
    });
  }

  if (verbs.includes("revoke")) {
    test("a revoked claim is not recalled", async (context) => {
      const [clientA, clientB] = [await context.openClient(), await context.openClient()];
      const [holder, waiter] = [context.createClaim("key", { recall: true }), context.createClaim("key")];
      const { token } = await clientA.claimHeld(holder);
      assert.deepEqual(await clientA.driver.revoke?.([{ key: "key", token, now: false }]), [true]);
      await clientB.claimWaiting(waiter);
      await clientB.renew(waiter);
      await context.sleep(PUSH_MS);
      assert.deepEqual(clientA.recalls, []);
      await clientA.release(holder);
      await clientB.waitForGrant(waiter);
      await clientB.release(waiter);
    });
  }
}

function testPushes(test: DefineTest, { traits }: ConformanceSettings): void {
  test("a holder is recalled when the first claim waits for it, not for each further one", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const holder = context.createClaim("key", { recall: true });
    await clientA.claimHeld(holder);
    const waiters: Claim[] = [];
    for (let count = 0; count < 6; count++) {
      const waiter = context.createClaim("key");
      await clientB.claimWaiting(waiter);
      waiters.push(waiter);
      if (count === 0) await context.waitUntil("the recall", () => clientA.recalls.length > 0);
    }
    await context.sleep(PUSH_MS);
    assert.ok(clientA.recalls.length <= 2, `${clientA.recalls.length} recalls for one queue`);
    assert.ok(
      clientA.recalls.every((id) => id === holder.id),
      "only the holder is recalled",
    );
    assert.deepEqual(clientB.recalls, []);
    await clientA.release(holder);
    for (const waiter of waiters) {
      await clientB.waitForGrant(waiter);
      await clientB.release(waiter);
    }
  });

  test("a waiter that asks again recalls the holder again, and it asks soon", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const [holder, waiter] = [context.createClaim("key", { recall: true }), context.createClaim("key")];
    await clientA.claimHeld(holder);
    const { recheckMs } = await clientB.claimWaiting(waiter);
    assert.ok(recheckMs <= MAX_FIRST_RECHECK_MS, `a lost recall costs ${recheckMs} ms`);
    for (let count = 1; count <= 3; count++) {
      await context.waitUntil(`recall ${count}`, () => clientA.recalls.length >= count);
      await clientB.renew(waiter);
    }
    await clientA.release(holder);
    await clientB.waitForGrant(waiter);
    await clientB.release(waiter);
  });

  test("a holder is recalled again after its queue was empty", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const holder = context.createClaim("key", { recall: true });
    await clientA.claimHeld(holder);
    for (let count = 1; count <= 3; count++) {
      const waiter = context.createClaim("key");
      await clientB.claimWaiting(waiter);
      await context.waitUntil(`recall ${count}`, () => clientA.recalls.length >= count);
      await clientB.release(waiter);
    }
    await clientA.release(holder);
  });

  if (traits.permits === "one") return;

  test("every holder that asked is recalled, and no other", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const reader = { permits: 1 } as const;
    const [asking, silent] = [
      context.createClaim("key", { ...reader, recall: true }),
      context.createClaim("key", reader),
    ];
    const [askingToo, writer] = [context.createClaim("key", { ...reader, recall: true }), context.createClaim("key")];
    for (const claim of [asking, silent, askingToo]) await clientA.claimHeld(claim);
    await clientB.claimWaiting(writer);
    await context.waitUntil("both recalls", () => new Set(clientA.recalls).size === 2);
    assert.deepEqual(new Set(clientA.recalls), new Set([asking.id, askingToo.id]));
    await clientA.release(asking, silent, askingToo);
    await clientB.waitForGrant(writer);
    await clientB.release(writer);
  });
}

async function isRecalled(client: DriverClient, claim: Claim): Promise<boolean> {
  const answer = await client.renew(claim);
  assert.equal(answer.state, "held");
  return answer.state === "held" && answer.recalled === true;
}

async function assertNotRecalled(context: TestContext, client: DriverClient, claim: Claim): Promise<void> {
  assert.equal(await isRecalled(client, claim), false);
  await context.sleep(PUSH_MS);
  assert.deepEqual(client.recalls, []);
}
