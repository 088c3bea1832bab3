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
    const taken = await clientB.locks.attach(reference);
    assert.deepEqual(taken.keys, ["key"]);
    assert.equal(taken.token, token);
    taken.throwIfLost();
    assert.ok(taken.remainingMs > 0);
    assert.equal(await taken.release(), true);
    await assertFree(third.locks.mutex("key"), context);
    await assert.rejects(clientB.locks.attach(reference), hasCode("LOCK_LOST"));
  });

  test("an attached lock is renewed, and not before", async (context) => {
    const ttl = context.scaleLease(400);
    const [clientA, clientB] = [await openTestClient(context, { ttl }), await openTestClient(context)];
    await clientB.locks.list(""); // connect first: that may take longer than the lease
    const reference = await (await clientA.locks.acquire("key")).detach();
    const taken = await clientB.locks.attach(reference);
    const end = performance.now() + 1.5 * ttl;
    await context.waitUntil("a lease and a half to pass", () => {
      taken.throwIfLost();
      return performance.now() >= end;
    });
    const again = await taken.detach();
    assert.equal(again, reference);
    await context.waitUntil("its lease to end", async () => (await clientB.locks.list("")).length === 0);
    await assert.rejects(clientB.locks.attach(again), (error: LockLostError) => {
      hasCode("LOCK_LOST")(error);
      return error.reason === "expired" || error.reason === "unknown";
    });
  });

  test("a lock detached for a time is free after it, and attaching it restarts its full lease", async (context) => {
    const [clientA, clientB] = [
      await openTestClient(context, { ttl: 60_000 }),
      await openTestClient(context, { ttl: 60_000 }),
    ];
    const left = context.scaleLease(400);
    const lock = await clientA.locks.all("a", "b").acquire();
    const kept = await (await clientA.locks.acquire("kept")).detach({ ttl: left });
    const since = performance.now();
    const away = await lock.detach({ ttl: left });
    assert.equal(await lock.release(), false, "this client does not hold it any more");
    await clientA.locks.close();
    const taken = await clientB.locks.attach(kept);
    assert.ok(taken.remainingMs > left || !detaches, `attached for a full lease, not ${taken.remainingMs} ms`);
    if (!detaches) {
      await taken.release();
      return void (await (await clientB.locks.attach(away)).release());
    }
    assert.equal(await (await clientB.locks.all("a", "b").acquire()).release(), true);
    assert.ok(performance.now() - since >= left - 1, "it was held for the given time");
    taken.throwIfLost();
    assert.equal(await taken.release(), true);
  });

  test("several keys are detached together, and releasing them frees all", async (context) => {
    const [clientA, clientB] = [await openTestClient(context), await openTestClient(context)];
    const lock = await clientA.locks.all("a", "b").acquire();
    const tokens = lock.keys.map((key) => lock.tokenOf(key));
    const taken = await clientB.locks.attach(await lock.detach());
    assert.deepEqual(
      taken.keys.map((key) => taken.tokenOf(key)),
      tokens,
    );
    assert.equal(await taken.release(), true);
    await waitForEmptyStore(context);
  });

  test("a lock inside using() cannot be detached, and a damaged reference is a TypeError", async (context) => {
    const { locks } = await openTestClient(context);
    await locks.using("key", async (lock) => {
      await assert.rejects(lock.detach(), hasCode("UNSUPPORTED"));
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
