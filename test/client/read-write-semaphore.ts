/** Readers, writers and semaphores in the client's API. */

import assert from "node:assert/strict";
import type { DefineTest } from "../../src/conformance/context.ts";
import type { ConformanceSettings } from "../../src/conformance/options.ts";
import { deferRejection, hasCode, openTestClient, waitForEmptyStore } from "../../src/conformance/test-client.ts";
import { settledState, waitForClaims } from "./helpers.ts";

export function testReadWriteAndSemaphore(test: DefineTest, { traits }: ConformanceSettings): void {
  if (traits.permits === "one") {
    test("shared locks and semaphores are refused before anything is sent", async (context) => {
      const { locks, chaosDriver } = await openTestClient(context);
      await locks.using("key", () => undefined);
      const before = chaosDriver.countCalls("claim");
      await assert.rejects(locks.rw("key").read.acquire(), hasCode("LOCK_UNSUPPORTED"));
      await assert.rejects(locks.semaphore("key", 2).acquire(), hasCode("LOCK_UNSUPPORTED"));
      assert.equal(chaosDriver.countCalls("claim"), before);
    });
    return;
  }

  test("rw: readers share, across clients and within one; a writer has it alone", async (context) => {
    const [clientA, clientB] = [await openTestClient(context), await openTestClient(context)];
    const readers = [
      await clientA.locks.rw("key").read.acquire(),
      await clientA.locks.rw("key").read.acquire(),
      await clientB.locks.rw("key").read.acquire(),
    ];
    if (traits.fencing) assert.equal(new Set(readers.map(({ token }) => token)).size, 3, "each has a different token");
    assert.equal(await clientB.locks.tryAcquire("key"), null);
    const writes = deferRejection(clientA.locks.rw("key").write.acquire());
    await waitForClaims(context, 4);
    for (const reader of readers) {
      assert.equal(await settledState(writes), "pending");
      assert.equal(await reader.release(), true);
    }
    const writer = await writes;
    assert.equal(await clientB.locks.rw("key").read.tryAcquire(), null);
    await writer.release();
  });

  if (traits.permits === "shared") {
    test("semaphores are refused before anything is sent", async (context) => {
      const { locks } = await openTestClient(context);
      await assert.rejects(locks.semaphore("key", 2).acquire(), hasCode("LOCK_UNSUPPORTED"));
    });
    return;
  }

  test("semaphore: as many are inside as it has permits, across clients", async (context) => {
    const players = [await openTestClient(context), await openTestClient(context), await openTestClient(context)];
    let used = 0;
    let maxUsed = 0;
    const use = (permits: number) => async (): Promise<void> => {
      used += permits;
      maxUsed = Math.max(maxUsed, used);
      await context.sleep(2);
      used -= permits;
    };
    await Promise.all(
      players.flatMap(({ locks }) =>
        [1, 2, 1, 3, 1, 2].map((permits) => locks.semaphore("key", 4).using({ permits }, use(permits))),
      ),
    );
    assert.ok(maxUsed <= 4, `${maxUsed} of 4 permits were held at once`);
    assert.ok(maxUsed >= 2, "several permits were held at once");
    await waitForEmptyStore(context);
  });
}
