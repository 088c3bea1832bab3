/** A detached lock is attached elsewhere (`detach`, `attach`). */

import assert from "node:assert/strict";
import type { DefineTest } from "../../src/conformance/context.ts";
import type { ConformanceSettings } from "../../src/conformance/options.ts";
import { hasCode, openTestClient, waitForEmptyStore } from "../../src/conformance/test-client.ts";
import type { LockLostError } from "../../src/errors.ts";
import { assertFree } from "./helpers.ts";

export function testDetachAttach(test: DefineTest, { traits, verbs }: ConformanceSettings): void {
  if (!traits.lease.claim) return;
  const detaches = verbs.includes("detach");

  test("a detached lock outlives its client and is the same lock where it is attached", async (context) => {
    const [clientA, clientB, third] = [
      await openTestClient(context),
      await openTestClient(context),
      await openTestClient(context),
    ];
    const lock = await clientA.locks.acquire("key");
    const { token } = lock;
    const reference = await lock.detach();
    assert.equal(await lock.release(), false, "this client does not hold it any more");
    await clientA.locks.close();
    assert.equal(await third.locks.tryAcquire("key"), null);
    const attachedLock = await clientB.locks.attach(reference);
    assert.deepEqual(attachedLock.keys, ["key"]);
    assert.equal(attachedLock.token, token);
    attachedLock.throwIfLost();
    assert.ok(attachedLock.remainingMs > 0);
    assert.equal(await attachedLock.release(), true);
    await assertFree(third.locks.mutex("key"), context);
    await assert.rejects(clientB.locks.attach(reference), hasCode("LOCK_LOST"));
  });

  test("an attached lock is renewed, and not before", async (context) => {
    const ttl = context.scaleLease(400);
    const [clientA, clientB] = [await openTestClient(context, { ttl }), await openTestClient(context)];
    await clientB.locks.list(""); // connect first: that may take longer than the lease
    const reference = await (await clientA.locks.acquire("key")).detach();
    const attachedLock = await clientB.locks.attach(reference);
    const end = performance.now() + 1.5 * ttl;
    await context.waitUntil("a lease and a half to pass", () => {
      attachedLock.throwIfLost();
      return performance.now() >= end;
    });
    const newReference = await attachedLock.detach();
    assert.equal(newReference, reference);
    await context.waitUntil("its lease to end", async () => (await clientB.locks.list("")).length === 0);
    await assert.rejects(clientB.locks.attach(newReference), (error: LockLostError) => {
      hasCode("LOCK_LOST")(error);
      return error.reason === "expired" || error.reason === "unknown";
    });
  });

  test("a lock detached for a time is free after it, and attaching it restarts its full lease", async (context) => {
    const [clientA, clientB] = [
      await openTestClient(context, { ttl: 60_000 }),
      await openTestClient(context, { ttl: 60_000 }),
    ];
    const ttl = context.scaleLease(400);
    const lock = await clientA.locks.all("a", "b").acquire();
    const keptReference = await (await clientA.locks.acquire("kept")).detach({ ttl });
    const since = performance.now();
    const expiringReference = await lock.detach({ ttl });
    assert.equal(await lock.release(), false, "this client does not hold it any more");
    await clientA.locks.close();
    const attachedLock = await clientB.locks.attach(keptReference);
    assert.ok(
      attachedLock.remainingMs > ttl || !detaches,
      `attached for a full lease, not ${attachedLock.remainingMs} ms`,
    );
    if (!detaches) {
      await attachedLock.release();
      return void (await (await clientB.locks.attach(expiringReference)).release());
    }
    assert.equal(await (await clientB.locks.all("a", "b").acquire()).release(), true);
    assert.ok(performance.now() - since >= ttl - 1, "it was held for the given time");
    attachedLock.throwIfLost();
    assert.equal(await attachedLock.release(), true);
  });

  test("several keys are detached together, and releasing them frees all", async (context) => {
    const [clientA, clientB] = [await openTestClient(context), await openTestClient(context)];
    const lock = await clientA.locks.all("a", "b").acquire();
    const tokens = lock.keys.map((key) => lock.tokenOf(key));
    const attachedLock = await clientB.locks.attach(await lock.detach());
    assert.deepEqual(
      attachedLock.keys.map((key) => attachedLock.tokenOf(key)),
      tokens,
    );
    assert.equal(await attachedLock.release(), true);
    await waitForEmptyStore(context);
  });

  test("a lock inside using() cannot be detached, and a damaged reference is a TypeError", async (context) => {
    const { locks } = await openTestClient(context);
    await locks.using("key", async (lock) => {
      await assert.rejects(lock.detach(), hasCode("LOCK_UNSUPPORTED"));
      lock.throwIfLost();
    });
    const lock = await locks.acquire("key");
    const reference = await lock.detach();
    for (const damaged of ["", "x", reference.slice(0, -1), `${reference.slice(0, 20)}A${reference.slice(21)}`]) {
      if (damaged !== reference) await assert.rejects(locks.attach(damaged), TypeError);
    }
    assert.equal(await (await locks.attach(reference)).release(), true);
  });
}
