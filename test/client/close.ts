/** close() and releaseAll(). */

import assert from "node:assert/strict";
import type { DefineTest } from "../../src/conformance/context.ts";
import { deferRejection, hasCode, openTestClient, waitForEmptyStore } from "../../src/conformance/test-client.ts";
import type { LockLostError } from "../../src/errors.ts";
import { hold, waitForClaims } from "./helpers.ts";

export function testClientClose(test: DefineTest): void {
  test("close() releases held locks, ends waits with ClosedError, and leaves nothing", async (context) => {
    const [clientA, clientB] = [await openTestClient(context), await openTestClient(context)];
    const held = [await clientA.locks.acquire("a"), await clientA.locks.all("b", "c").acquire()];
    const busyLock = await hold(clientB.locks, "busy");
    const waits = ["busy", "busy", "a"].map((key) => deferRejection(clientA.locks.acquire(key)));
    await waitForClaims(context, clientA.locks.traits?.manyKeys ? 4 : 5);
    const rejected = Promise.all(waits.map((wait) => assert.rejects(wait, hasCode("LOCK_CLOSED"))));
    await clientA.locks.close();
    await rejected;
    await waitForClaims(context, 1);
    for (const lock of held) {
      assert.throws(() => lock.throwIfLost(), hasCode("LOCK_LOST"));
      assert.equal(await lock.release(), false);
    }
    await busyLock.release();
    await waitForEmptyStore(context);
  });

  test("a closed client refuses everything with ClosedError; closing it again does nothing", async (context) => {
    const { locks } = await openTestClient(context);
    await locks.using("key", () => undefined);
    await Promise.all([locks.close(), locks.close()]);
    await assert.rejects(locks.acquire("key"), hasCode("LOCK_CLOSED"));
    await assert.rejects(locks.tryAcquire("key"), hasCode("LOCK_CLOSED"));
    await assert.rejects(locks.all("a", "b").acquire(), hasCode("LOCK_CLOSED"));
    await assert.rejects(
      locks.using("key", () => assert.fail("the body is not run")),
      hasCode("LOCK_CLOSED"),
    );
    await assert.rejects(locks.list(), hasCode("LOCK_CLOSED"));
    await locks[Symbol.asyncDispose]();
  });

  test("releaseAll() releases everything and the client stays usable", async (context) => {
    const [clientA, clientB] = [await openTestClient(context), await openTestClient(context)];
    const held = [await clientA.locks.acquire("a"), await clientA.locks.acquire("b")];
    const next = deferRejection(clientB.locks.acquire("a"));
    await clientA.locks.releaseAll();
    for (const lock of held) {
      assert.ok(lock.signal.aborted);
      assert.equal((lock.signal.reason as LockLostError).reason, "released");
      assert.equal(await lock.release(), false);
    }
    await (await next).release();
    await clientA.locks.using("a", () => undefined);
    await waitForEmptyStore(context);
  });

  test("close() in the middle of everything leaves nothing", async (context) => {
    for (let round = 0; round < 5; round++) {
      const testClient = await openTestClient(context, {}, { delayCall: 0.5, maxDelayMs: 4, seed: round + 1 });
      const operations = Array.from({ length: 20 }, (_, index) =>
        testClient.locks
          .using(`key ${index % 3}`, () => context.sleep(1))
          .then(
            () => null,
            (error: { code?: unknown }) => error.code,
          ),
      );
      await context.sleep(round * 4);
      await testClient.locks.close();
      for (const code of await Promise.all(operations))
        assert.ok([null, "LOCK_CLOSED", "LOCK_LOST"].includes(code as string | null));
      await waitForEmptyStore(context);
    }
  });
}
