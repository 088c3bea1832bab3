/** acquire() with the options `replace` and `maxQueue`. */

import assert from "node:assert/strict";
import type { Lock } from "../../src/client/lock.ts";
import type { DefineTest } from "../../src/conformance/context.ts";
import type { ConformanceSettings } from "../../src/conformance/options.ts";
import { deferRejection, hasCode, openTestClient, waitForEmptyStore } from "../../src/conformance/test-client.ts";
import type { LockLostError, QueueFullError } from "../../src/errors.ts";
import { assertFree, settledState, waitForClaims } from "./helpers.ts";

export function testReplace(test: DefineTest, { traits, verbs }: ConformanceSettings): void {
  test("maxQueue: a request that would be one too many is rejected at once, and says how many wait", async (context) => {
    const [clientA, clientB] = [await openTestClient(context), await openTestClient(context)];
    const lock = await clientB.locks.acquire("key");
    const waits = [1, 2].map(() => deferRejection(clientA.locks.acquire("key", { maxQueue: 2 })));
    await assert.rejects(clientA.locks.acquire("key", { maxQueue: 2 }), (error: QueueFullError) => {
      hasCode("LOCK_QUEUE_FULL")(error);
      assert.deepEqual([error.waiting, error.keys], [2, ["key"]]);
      return true;
    });
    assert.equal(await clientA.locks.tryAcquire("key"), null);
    await lock.release();
    for (const wait of waits) await (await wait).release();
    await assertFree(clientA.locks.mutex("key"), context);
  });

  if (!verbs.includes("revoke") || !traits.fencing || traits.list === "own") {
    test("replace is refused with UnsupportedError before anything is sent", async (context) => {
      const { locks } = await openTestClient(context);
      await assert.rejects(locks.acquire("key", { replace: true }), hasCode("LOCK_UNSUPPORTED"));
      await waitForEmptyStore(context);
    });
    return;
  }

  test("replace: the holder is revoked, and the request gets the lock when it has ended", async (context) => {
    const ttl = context.scaleLease(400);
    const [clientA, clientB] = [await openTestClient(context, { ttl }), await openTestClient(context, { ttl })];
    const old = await clientA.locks.acquire("key");
    const next = deferRejection(clientB.locks.acquire("key", { replace: true }));
    await context.waitUntil("the holder's notice", () => old.signal.aborted);
    assert.equal((old.signal.reason as LockLostError).reason, "revoked");
    assert.equal(await settledState(next), "pending", "the holder has not ended yet");
    assert.equal(await old.release(), false);
    const lock = await next;
    assert.ok(lock.token > old.token);
    await lock.release();
    await waitForEmptyStore(context);
  });

  test("replace: a holder that does not end keeps the key until the end of its lease", async (context) => {
    const ttl = context.scaleLease(400);
    const [clientA, clientB] = [await openTestClient(context, { ttl }), await openTestClient(context, { ttl })];
    const old = await clientA.locks.acquire("key");
    const lock = await clientB.locks.acquire("key", { replace: true });
    assert.ok(old.signal.aborted);
    await lock.release();
    await old.release();
  });

  test("replace within a client, and several that replace: each gets the lock in its turn, and the newest keeps it", async (context) => {
    const ttl = context.scaleLease(600);
    const clients = [await openTestClient(context, { ttl }), await openTestClient(context, { ttl })] as const;
    const order: string[] = [];
    const asked = new Set<string>();
    for (const { locks } of clients)
      for (const event of ["waiting", "acquired"] as const) locks.on(event, ({ label }) => asked.add(label));
    let last: Lock | undefined;
    const hold = (client: number, name: string, replace: boolean): Promise<void> =>
      (clients[client] as (typeof clients)[0]).locks.acquire("key", { replace, label: name }).then(async (lock) => {
        order.push(name);
        last = lock;
        lock.signal.addEventListener("abort", () => void lock.release());
        if (lock.signal.aborted) await lock.release();
      });
    await hold(0, "first", false);
    const holds: Promise<void>[] = [];
    for (const [client, name, replace] of [
      [1, "waiter", false],
      [0, "newer", true],
      [1, "newest", true],
    ] as const) {
      holds.push(deferRejection(hold(client, name, replace)));
      await context.waitUntil("its claim", () => asked.has(name));
    }
    await Promise.all(holds);
    assert.equal(order[0], "first");
    assert.equal(order.at(-1), "newest", order.join(" "));
    await context.sleep(2 * ttl);
    last?.throwIfLost();
    assert.equal(await last?.release(), true);
    await waitForEmptyStore(context);
  });

  test("replace: no holder is revoked for a free key, or for a lock that the flow itself has", async (context) => {
    const { locks } = await openTestClient(context);
    await locks.using("key", { replace: true }, async (outer) => {
      await locks.using("key", { replace: true }, (inner) => assert.equal(inner.token, outer.token));
      outer.throwIfLost();
    });
  });

  test("replace: wrong uses are refused before anything is sent", async (context) => {
    const { locks } = await openTestClient(context);
    await assert.rejects(locks.acquire("key", { replace: true, wait: 0 }), /replace needs a wait/);
    await assert.rejects(locks.tryAcquire("key", { replace: true } as object), /no option "replace"/);
    await assert.rejects(locks.acquire("key", { replace: "yes" as never }), /replace must be true or false/);
    await assert.rejects(locks.acquire("key", { maxQueue: 0 }), /maxQueue must be a whole number from 1/);
    if (traits.permits !== "any") return;
    await assert.rejects(locks.rw("key").read.acquire({ replace: true }), hasCode("LOCK_UNSUPPORTED"));
    await assert.rejects(locks.semaphore("key", 3).acquire({ replace: true }), hasCode("LOCK_UNSUPPORTED"));
    await waitForClaims(context, 0);
  });
}
