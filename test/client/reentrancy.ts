/** A holder may acquire its lock again inside using() and lock.run(). */

import assert from "node:assert/strict";
import type { DefineTest } from "../../src/conformance/context.ts";
import type { ConformanceSettings } from "../../src/conformance/options.ts";
import { deferRejection, hasCode, openTestClient, waitForEmptyStore } from "../../src/conformance/test-client.ts";
import { withoutCurrentLock } from "../../src/wrapping/current-lock.ts";
import { settledState } from "./helpers.ts";

export function testReentrancy(test: DefineTest, { traits }: ConformanceSettings): void {
  test("nested requests join, keep the token, and only the last release frees the lock", async (context) => {
    const [clientA, clientB] = [await openTestClient(context), await openTestClient(context)];
    await clientA.locks.using("key", async (outer) => {
      const inner = await clientA.locks.acquire("key");
      if (traits.fencing) assert.equal(inner.token, outer.token);
      await clientA.locks.using("key", async () => assert.ok(clientA.locks.holds("key")));
      assert.notEqual(await clientA.locks.tryAcquire("key").then((lock) => lock?.release()), undefined);
      assert.equal(await inner.release(), true);
      outer.throwIfLost();
      assert.equal(await clientB.locks.tryAcquire("key"), null);
    });
    assert.ok(!clientA.locks.holds("key"));
    assert.equal(await clientB.locks.tryAcquire("key").then((lock) => lock?.release()), true);
  });

  test("lock.run() is as if inside using(); a bare acquire is not", async (context) => {
    const { locks } = await openTestClient(context);
    const lock = await locks.acquire("key");
    assert.ok(!locks.holds("key"));
    assert.equal(await locks.tryAcquire("key"), null);
    await lock.run(async () => {
      assert.ok(locks.holds("key"));
      await locks.using("key", () => undefined);
    });
    assert.ok(!locks.holds("key"));
    assert.equal(await lock.release(), true);
  });

  test("inside withoutCurrentLock() no lock of the flow is held: a nested request waits like a stranger's", async (context) => {
    const { locks } = await openTestClient(context);
    let waiting: Promise<unknown> = Promise.resolve();
    await locks.using("key", async () => {
      await withoutCurrentLock(async () => {
        assert.ok(!locks.holds("key"));
        assert.equal(await locks.tryAcquire("key"), null);
        waiting = deferRejection(locks.using("key", () => assert.ok(locks.holds("key"))));
        await locks.using("other", () => assert.ok(locks.holds("other") && !locks.holds("key")));
      });
      assert.ok(locks.holds("key"));
      assert.equal(await settledState(waiting), "pending");
    });
    await waiting;
  });

  test("parallel flows do not share a lock", async (context) => {
    const { locks } = await openTestClient(context);
    let insideCount = 0;
    const body = async (): Promise<void> => {
      assert.equal(++insideCount, 1);
      await locks.using("key", () => context.sleep(1));
      insideCount--;
    };
    await Promise.all(Array.from({ length: 8 }, () => locks.using("key", body)));
  });

  test("two nested requests at once join both", async (context) => {
    const { locks } = await openTestClient(context);
    await locks.using("key", async () => {
      let insideCount = 0;
      const body = async (): Promise<number> => {
        insideCount++;
        await context.sleep(5);
        return insideCount;
      };
      assert.deepEqual(await Promise.all([locks.using("key", body), locks.using("key", body)]), [2, 2]);
    });
  });

  test("a request that outlives its hold queues like any other", async (context) => {
    const { locks } = await openTestClient(context);
    let lateCall: Promise<unknown> = Promise.resolve();
    let resume = (): void => undefined;
    const gate = new Promise<void>((resolve) => {
      resume = resolve;
    });
    await locks.using("key", () => {
      lateCall = deferRejection(gate.then(() => locks.using("key", () => undefined)));
    });
    const lock = await locks.acquire("key");
    resume();
    await context.sleep(20);
    assert.equal(await settledState(lateCall), "pending");
    await lock.release();
    await lateCall;
  });

  test("reentrant: false makes a nested request a DeadlockError, at once", async (context) => {
    const { locks } = await openTestClient(context, { reentrant: false });
    await locks.using("key", async () => {
      await assert.rejects(locks.acquire("key"), hasCode("LOCK_DEADLOCK"));
    });
    await locks.using("key", () => undefined);
  });

  test("all() inside a hold joins what is held and claims the rest", async (context) => {
    const [clientA, clientB] = [await openTestClient(context), await openTestClient(context)];
    await clientA.locks.using("b", async (outer) => {
      await clientA.locks.all("a", "b", "c").using(async (lock) => {
        assert.deepEqual(lock.keys, ["a", "b", "c"]);
        if (traits.fencing) assert.equal(lock.tokenOf("b"), outer.token);
        for (const key of ["a", "b", "c"]) assert.equal(await clientB.locks.tryAcquire(key), null);
      });
      assert.equal(await clientB.locks.tryAcquire("a").then((lock) => lock?.release()), true);
      assert.equal(await clientB.locks.tryAcquire("b"), null);
    });
    await waitForEmptyStore(context);
  });

  if (traits.permits === "one") return;

  test("reading inside writing joins; writing inside reading is a DeadlockError, at once", async (context) => {
    const { locks } = await openTestClient(context);
    const { read, write } = locks.rw("key");
    await write.using(() => read.using(() => write.using(() => undefined)));
    await read.using(async () => {
      await read.using(() => undefined);
      await assert.rejects(write.acquire(), hasCode("LOCK_DEADLOCK"));
      await assert.rejects(locks.acquire("key"), hasCode("LOCK_DEADLOCK"));
      await assert.rejects(locks.tryAcquire("key"), hasCode("LOCK_DEADLOCK"));
    });
    await waitForEmptyStore(context);
  });

  if (traits.permits !== "any") return;

  test("a semaphore never joins: nested calls take permits, and one that could only wait for its own flow is refused", async (context) => {
    const { locks } = await openTestClient(context);
    const gpu = locks.semaphore("gpu", 3);
    await gpu.using({ permits: 2 }, async () => {
      await gpu.using(async () => {
        assert.equal(
          await locks
            .semaphore("gpu", 5)
            .tryAcquire({ permits: 2 })
            .then((lock) => lock?.release()),
          true,
        );
        await assert.rejects(gpu.acquire(), hasCode("LOCK_DEADLOCK"));
      });
      await assert.rejects(gpu.acquire({ permits: 2 }), hasCode("LOCK_DEADLOCK"));
    });
    await waitForEmptyStore(context);
  });
}
