/** Claims that last as long as their client's session. */

import assert from "node:assert/strict";
import type { DefineTest } from "../../src/conformance/context.ts";
import { assertHeld } from "../../src/conformance/context.ts";
import type { ConformanceSettings } from "../../src/conformance/options.ts";
import { hasCode, openTestClient } from "../../src/conformance/test-client.ts";

export function testSessions(test: DefineTest, { traits }: ConformanceSettings): void {
  const { sessionMs } = traits.lease;

  if (sessionMs === undefined) {
    test('ttl: "session" is refused before anything is sent', async (context) => {
      const { locks, chaosDriver } = await openTestClient(context);
      await locks.using("key", () => undefined);
      const before = chaosDriver.countCalls("claim");
      await assert.rejects(locks.acquire("key", { ttl: "session" }), hasCode("LOCK_UNSUPPORTED"));
      assert.equal(chaosDriver.countCalls("claim"), before);
    });
    return;
  }

  test("claims of a session queue like all others, and show the session's length", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const ttlMs = "session";
    const [holder, waiter] = [
      context.createClaim("key", { ttlMs, tokenCount: 4 }),
      context.createClaim("key", { ttlMs }),
    ];
    const { remainingMs: remainingBefore, token } = await clientA.claimHeld(holder);
    assert.ok(
      remainingBefore > 0 && remainingBefore <= sessionMs + 1,
      `${remainingBefore} ms of a session of ${sessionMs}`,
    );
    await clientB.claimWaiting(waiter);
    assert.equal(assertHeld(await clientA.renew(holder), holder).token, token);
    assert.deepEqual(
      (await context.listClaims()).map((view) => view.ttlMs),
      [ttlMs, ttlMs],
    );
    assert.deepEqual(await clientA.release(holder), [true]);
    await clientB.waitForGrant(waiter);
    assert.deepEqual(await clientB.release(waiter), [true]);
  });

  test("a lock of a session cannot be detached", async (context) => {
    const { locks } = await openTestClient(context);
    const lock = await locks.acquire("key", { ttl: "session" });
    await assert.rejects(lock.detach(), hasCode("LOCK_UNSUPPORTED"));
    lock.throwIfLost();
    assert.equal(await lock.release(), true);
  });
}
