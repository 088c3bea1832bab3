/** all(): several keys together, whether or not the store can claim them together. */

import assert from "node:assert/strict";
import type { DefineTest } from "../../src/conformance/context.ts";
import type { ConformanceSettings } from "../../src/conformance/options.ts";
import { deferRejection, hasCode, openTestClient, waitForEmptyStore } from "../../src/conformance/test-client.ts";
import { createRandom } from "../../src/testing/random.ts";

export function testClientMultiKey(test: DefineTest, { traits }: ConformanceSettings): void {
  test("all() holds every key, or none", async (context) => {
    const [clientA, clientB] = [await openTestClient(context), await openTestClient(context)];
    const lock = await clientA.locks.all("c", "a", "b").acquire();
    assert.deepEqual(lock.keys, ["a", "b", "c"]);
    if (traits.fencing) for (const key of lock.keys) assert.ok(lock.tokenOf(key) <= lock.token);
    for (const key of lock.keys) assert.equal(await clientB.locks.tryAcquire(key), null);
    assert.equal(await clientB.locks.all("x", "c").tryAcquire(), null);
    await assert.rejects(clientB.locks.all("0", "b").acquire({ wait: 50 }), hasCode("LOCK_TIMEOUT"));
    for (const key of ["x", "0"])
      assert.equal(await clientA.locks.tryAcquire(key).then((freeLock) => freeLock?.release()), true);
    assert.equal(await lock.release(), true);
    await waitForEmptyStore(context);
  });

  test("requests that name the same keys in different orders never deadlock", async (context) => {
    const testClients = [
      await openTestClient(context),
      await openTestClient(context),
      await openTestClient(context, { order: "strict" }),
    ];
    const random = createRandom(3);
    const insideKeys = new Set<string>();
    const runClient = async ({ locks }: (typeof testClients)[number]): Promise<void> => {
      for (let round = 0; round < 10; round++) {
        const keys = ["a", "b", "c", "d"].filter(() => random.chance(0.6)).sort(() => random.next() - 0.5);
        await locks.all("e", ...keys.slice(0, round % 4)).using(async ({ keys: held }) => {
          for (const key of held) {
            assert.ok(!insideKeys.has(key), `two hold "${key}"`);
            insideKeys.add(key);
          }
          await context.sleep(round % 2);
          for (const key of held) insideKeys.delete(key);
        });
      }
    };
    await Promise.all(testClients.flatMap((testClient) => [runClient(testClient), runClient(testClient)]));
    await waitForEmptyStore(context);
  });

  test("an aborted wait for several keys leaves none of them", async (context) => {
    const [clientA, clientB] = [await openTestClient(context), await openTestClient(context)];
    for (const busyKey of ["a", "b", "c"]) {
      const holder = await clientB.locks.acquire(busyKey);
      const abort = new AbortController();
      const waits = deferRejection(clientA.locks.all("a", "b", "c").acquire({ signal: abort.signal }));
      await context.sleep(10);
      abort.abort(new RangeError("enough"));
      await assert.rejects(waits, RangeError);
      await holder.release();
      await waitForEmptyStore(context);
    }
  });

  if (!traits.fencing) return;

  test("the tokens of several keys rise with those of each", async (context) => {
    const { locks } = await openTestClient(context);
    const last = new Map<string, bigint>();
    for (const keys of [["a"], ["b", "a"], ["b"], ["a", "b", "c"], ["c"], ["a"], ["a", "c"]]) {
      await locks.all(...keys).using((lock) => {
        for (const key of lock.keys) {
          assert.ok(lock.tokenOf(key) > (last.get(key) ?? 0n));
          last.set(key, lock.tokenOf(key));
        }
      });
    }
  });
}
