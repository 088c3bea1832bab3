/** Lists, labels and prefixes of a client; and memory that idle keys leave in it. */

import assert from "node:assert/strict";
import type { DefineTest } from "../../src/conformance/context.ts";
import type { ConformanceSettings } from "../../src/conformance/options.ts";
import { deferRejection, openTestClient, waitForEmptyStore } from "../../src/conformance/test-client.ts";
import { heapUsed } from "../support/heap-usage.ts";
import { waitForClaims } from "./helpers.ts";

export function testClientList(test: DefineTest, settings: ConformanceSettings): void {
  test("a list shows holders and waiters, with labels, within the client's prefix", async (context) => {
    const [clientA, clientB] = [
      await openTestClient(context, { prefix: "app:", label: "one" }),
      await openTestClient(context, { prefix: "app:" }),
    ];
    const bare = await openTestClient(context);
    const lock = await clientA.locks.acquire("job:1");
    const outside = await bare.locks.acquire("job:1");
    const waits = deferRejection(clientB.locks.acquire("job:1", { label: "two" }));
    await waitForClaims(context, 3);
    const summary = (await clientA.locks.list("job:")).map(({ locks, label, state }) => [locks[0].key, label, state]);
    const behind = settings.traits.list === "own" ? [] : [["job:1", "two", "waiting"]];
    assert.deepEqual(summary, [["job:1", "one", "held"], ...behind]);
    assert.deepEqual(lock.keys, ["job:1"]);
    await outside.release();
    await lock.release();
    await (await waits).release();
    assert.deepEqual(await clientA.locks.list(), []);
  });

  test(`${settings.keys} different keys leave nothing in the store and nothing in the client`, async (context) => {
    // no inspection: after each of so many calls it would take far longer than the calls
    const { locks } = await openTestClient(context, {}, { inspect: async () => undefined });
    const runCycles = async (count: number, name: string): Promise<void> => {
      for (let createdCount = 0; createdCount < count; createdCount += 200) {
        await Promise.all(
          Array.from({ length: Math.min(200, count - createdCount) }, async (_, index) => {
            const lock = await locks.acquire(`${name} ${createdCount + index}`);
            await lock.release();
          }),
        );
      }
    };
    // the client remembers tokens of at most 10,000 keys
    await runCycles(Math.min(settings.keys, 20_000), "before");
    const before = heapUsed();
    await runCycles(settings.keys, "after");
    const growth = heapUsed() - before;
    assert.ok(growth < 2_000_000 + settings.keys * 8, `the heap grew by ${growth} bytes over ${settings.keys} keys`);
    await waitForEmptyStore(context);
  });
}
