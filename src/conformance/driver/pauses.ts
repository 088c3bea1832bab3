/** A store that pauses its grants reports the pause: unknown is not busy. */

import assert from "node:assert/strict";
import type { Answer, Pause } from "../../spi/driver.ts";
import type { DefineTest } from "../context.ts";
import { deferRejection, hasCode, openTestClient, waitForEmptyStore } from "../test-client.ts";

/** Tests of a store that is paused for longer than each test takes. */
export function testPauses(test: DefineTest): void {
  test("while nothing new is granted, a claim that does not wait gets the pause, and leaves no trace", async (context) => {
    const client = await context.openClient();
    const answer = await client.claim(context.createClaim("key", { wait: false }));
    assert.equal(answer.state, "none");
    assert.equal(answer.state === "none" && answer.reason, undefined);
    assertPaused(answer);
    assert.deepEqual((await client.driver.list({ prefix: "" }, { max: 10 })).items, []);
  });

  test("while nothing new is granted, a waiting claim gets the pause in every answer", async (context) => {
    const client = await context.openClient();
    const claim = context.createClaim("key");
    assertPaused(await client.claimWaiting(claim));
    const again = await client.renew(claim);
    assert.equal(again.state, "waiting");
    assertPaused(again);
    assertPaused(await client.claim(context.createClaim("key", { wait: false })));
    assert.deepEqual(await client.release(claim), [true]);
  });

  test("while nothing new is granted, tryAcquire() and wait: 0 reject: they do not say that it is busy", async (context) => {
    const { locks } = await openTestClient(context);
    await assert.rejects(locks.tryAcquire("key"), hasCode("LOCK_STORE_PAUSED"));
    await assert.rejects(locks.acquire("key", { wait: 0 }), hasCode("LOCK_STORE_PAUSED"));
    await assert.rejects(locks.all("key", "other").tryAcquire(), hasCode("LOCK_STORE_PAUSED"));
    let isQueued = false;
    locks.on("waiting", () => {
      isQueued = true;
    });
    const waits = deferRejection(locks.acquire("key", { wait: context.scaleMs(5_000) }));
    // its entry may be in the store before the answer is here, which tells the client of the pause
    await context.waitUntil("the answer to the waiter's claim", () => isQueued);
    // also after an earlier request of the same client
    await assert.rejects(locks.tryAcquire("key"), hasCode("LOCK_STORE_PAUSED"));
    await locks.close();
    await assert.rejects(waits, hasCode("LOCK_CLOSED"));
    await waitForEmptyStore(context);
  });

  test("a wait that ends while nothing new is granted says so", async (context) => {
    const { locks } = await openTestClient(context);
    await assert.rejects(locks.acquire("key", { wait: context.scaleMs(200) }), (error: unknown) => {
      const { code, message, blocked } = error as { code: string; message: string; blocked: { paused?: Pause } };
      assert.equal(code, "LOCK_TIMEOUT");
      assert.match(message, /grants nothing new for about \d+ s \(.+\)/);
      assert.ok(blocked.paused !== undefined && blocked.paused.remainingMs > 0);
      return true;
    });
    await waitForEmptyStore(context);
  });
}

function assertPaused(answer: Answer): void {
  assert.ok(answer.state !== "held", "nothing new is granted");
  assert.ok(answer.paused !== undefined, "the answer reports the pause");
  assert.ok(["recovery", "gracePeriod"].includes(answer.paused.reason));
  assert.ok(answer.paused.remainingMs > 0);
}
