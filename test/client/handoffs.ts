/** Within one client a lock is handed off without asking the store, up to a limit. */

import assert from "node:assert/strict";
import type { Lock } from "../../src/client/lock.ts";
import type { DefineTest } from "../../src/conformance/context.ts";
import type { ConformanceSettings } from "../../src/conformance/options.ts";
import type { TestClient } from "../../src/conformance/test-client.ts";
import { deferRejection, openTestClient, waitForEmptyStore } from "../../src/conformance/test-client.ts";
import { waitForClaims } from "./helpers.ts";

export function testHandoffs(test: DefineTest, { traits }: ConformanceSettings): void {
  test("a busy client passes the lock on by itself, and tokens go on rising", async (context) => {
    const { locks, chaosDriver } = await openTestClient(context);
    let handedOff = 0;
    locks.on("handedOff", () => handedOff++);
    let last = 0n;
    const body = (lock: Lock): void => {
      if (!traits.fencing) return;
      assert.ok(lock.token > last, `${lock.token} after ${last}`);
      last = lock.token;
    };
    await Promise.all(Array.from({ length: 200 }, () => locks.using("key", body)));
    const claims = chaosDriver.countCalls("claim");
    assert.equal(claims + handedOff, 200, "every holder had a claim or got one by a hand-off");
    await waitForEmptyStore(context);
  });

  test("a client that hands off lets others in between its runs", async (context) => {
    const [busyClient, otherClient] = [await openTestClient(context), await openTestClient(context)];
    let isOver = false;
    const loop = async (): Promise<void> => {
      while (!isOver) await busyClient.locks.using("key", () => context.sleep(1));
    };
    const loops = Array.from({ length: 12 }, loop);
    const turns: number[] = [];
    for (let round = 0; round < 5; round++) {
      await otherClient.locks.using("key", { wait: context.scaleMs(5_000) }, () => turns.push(round));
    }
    isOver = true;
    await Promise.all(loops);
    assert.deepEqual(turns, [0, 1, 2, 3, 4]);
    await waitForEmptyStore(context);
  });

  if (!traits.fifo) return;

  for (const [how, clientOptions, requestOptions] of [
    ["strict order", { order: "strict" }, {}],
    ["strict order of each request", {}, { order: "strict" }],
  ] as const) {
    test(`${how} is first come, first served, across clients and within one`, async (context) => {
      const players = [await openTestClient(context, clientOptions), await openTestClient(context, clientOptions)];
      // one client for all checks: opening one for each would take longer than the others wait
      const { driver } = await context.openClient();
      const first = await (players[0] as TestClient).locks.acquire("key");
      const served: number[] = [];
      const waits: Promise<unknown>[] = [];
      for (let index = 0; index < 8; index++) {
        const { locks } = players[(index >> 1) % 2] as TestClient;
        waits.push(deferRejection(locks.using("key", requestOptions, () => served.push(index))));
        await waitForClaims(context, index + 2, driver);
      }
      await first.release();
      await Promise.all(waits);
      assert.deepEqual(served, [0, 1, 2, 3, 4, 5, 6, 7]);
      await waitForEmptyStore(context);
    });
  }
}
