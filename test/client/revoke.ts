/** An operator revokes a lock through a client, and the holder's client notifies the holder. */

import assert from "node:assert/strict";
import type { DefineTest } from "../../src/conformance/context.ts";
import type { ConformanceSettings } from "../../src/conformance/options.ts";
import { deferRejection, hasCode, openTestClient } from "../../src/conformance/test-client.ts";
import type { LockLostError } from "../../src/errors.ts";
import { assertFree, waitForClaims } from "./helpers.ts";

export function testClientRevoke(test: DefineTest, { traits, verbs }: ConformanceSettings): void {
  if (!verbs.includes("revoke") || !traits.fencing) return;

  test("a revoked holder's signal aborts with reason revoked, and the next waiter is granted after its release", async (context) => {
    const ttl = context.scaleLease(400);
    const [clientA, clientB] = [await openTestClient(context, { ttl }), await openTestClient(context, { prefix: "" })];
    const lock = await clientA.locks.acquire("key");
    const next = deferRejection(clientB.locks.acquire("key"));
    await waitForClaims(context, 2);
    assert.equal(await clientB.locks.revoke("key", lock.token - 1n), false, "another claim's token");
    lock.throwIfLost();
    assert.equal(await clientB.locks.revoke("key", lock.token, { reason: "deploy" }), true);
    await context.waitUntil("the holder's notification", () => lock.signal.aborted);
    assert.equal((lock.signal.reason as LockLostError).reason, "revoked");
    assert.throws(() => lock.throwIfLost(), hasCode("LOCK_LOST"));
    assert.equal(await lock.release(), false);
    await (await next).release();
    assert.equal(await clientB.locks.revoke("key", lock.token), false, "it is not held any more");
  });

  test("a lock removed at once is granted to the next", async (context) => {
    const [clientA, clientB] = [await openTestClient(context, { prefix: "app:" }), await openTestClient(context)];
    const lock = await clientA.locks.acquire("key");
    assert.equal(
      await clientA.locks.revoke("key", lock.token, { now: true }),
      true,
      "the client's prefix is its affair",
    );
    await assertFree(clientB.locks.mutex("app:key"), context);
    await context.waitUntil("the holder's notification", () => lock.signal.aborted);
    assert.equal(await lock.release(), false);
  });

  test("wrong arguments of revoke are refused before anything is sent", async (context) => {
    const { locks } = await openTestClient(context);
    const revokeUntyped = locks.revoke as unknown as (...args: unknown[]) => Promise<boolean>;
    await assert.rejects(revokeUntyped("", 1n), /key must not be empty/);
    await assert.rejects(revokeUntyped("key", 1), /token must be a bigint, not 1/);
    await assert.rejects(revokeUntyped("key", 1n, { now: "yes" }), /now must be true or false/);
    await assert.rejects(revokeUntyped("key", 1n, { reason: 7 }), /reason must be a string/);
    await assert.rejects(revokeUntyped("key", 1n, { force: true }), /revoke has no option "force"/);
    await assert.rejects(revokeUntyped("key", 1n, null), /options of revoke must be an object/);
  });
}
