/** A client keeps a lock for its next request until somebody else wants it. */

import assert from "node:assert/strict";
import type { Locks } from "../../src/client/locks.ts";
import type { DefineTest, TestContext } from "../../src/conformance/context.ts";
import type { ConformanceSettings } from "../../src/conformance/options.ts";
import type { TestClient } from "../../src/conformance/test-client.ts";
import { hasCode, openTestClient, waitForEmptyStore } from "../../src/conformance/test-client.ts";

/** Longer than any test. */
const CACHE_MS = 600_000;

/** What a recall that is lost may cost a waiter: a recheck, and a hand-off limit; leases are much longer. */
const LOST_RECALL_MS = 2_000;

export function testCachedLocks(test: DefineTest, settings: ConformanceSettings): void {
  const { recall, fencing, reportsBreaks } = settings.traits;
  if (recall === false || reportsBreaks === false) {
    test("a store that cannot recall, or a client that does not report breaks, refuses cached locks", async (context) => {
      const { locks, chaosDriver } = await openTestClient(context);
      await assert.rejects(locks.acquire("key", { cache: "1s" }), hasCode("LOCK_UNSUPPORTED"));
      assert.equal(chaosDriver.countCalls("claim"), 0);
    });
    return;
  }

  const openCaching = (context: TestContext, cache = CACHE_MS): Promise<TestClient> =>
    openTestClient(context, { cache });

  test("a lock that its client uses again needs no call, and its tokens rise", async (context) => {
    const { locks, chaosDriver } = await openCaching(context);
    let last = 0n;
    for (let round = 0; round < 40; round++) {
      const lock = await locks.acquire("key");
      if (fencing) assert.ok(lock.token > last, `${lock.token} after ${last}`);
      if (fencing) last = lock.token;
      assert.equal(await lock.release(), true);
    }
    // 16 tokens at first, then twice as many each time
    const claims = chaosDriver.countCalls("claim");
    assert.ok(fencing ? claims <= 3 : claims <= 40, `${claims} claims`);
    await locks.close();
    await waitForEmptyStore(context);
  });

  test("an idle lock is given to another client that wants it, and back", async (context) => {
    const [clientA, clientB] = [await openCaching(context), await openCaching(context)];
    for (let round = 0; round < 3; round++) {
      for (const { locks } of [clientA, clientB]) {
        const lock = await locks.acquire("key", { wait: context.scaleMs(LOST_RECALL_MS) });
        await lock.release();
      }
    }
    await clientA.locks.close();
    await clientB.locks.close();
    await waitForEmptyStore(context);
  });

  test("readers, semaphores and several keys of others get an idle lock", async (context) => {
    const { permits } = settings.traits;
    const [clientA, clientB] = [await openCaching(context), await openTestClient(context)];
    const wait = context.scaleMs(LOST_RECALL_MS);
    const use = async (locks: Locks, keys: readonly string[]): Promise<void> => {
      for (const key of keys) await (await locks.acquire(key)).release();
    };
    await use(clientA.locks, ["a", "b"]);
    await (await clientB.locks.all("a", "b").acquire({ wait })).release();
    if (permits !== "one") {
      await use(clientA.locks, ["a"]);
      await (await clientB.locks.rw("a").read.acquire({ wait })).release();
    }
    if (permits === "any") {
      await use(clientA.locks, ["a"]);
      await (await clientB.locks.semaphore("a", 2).acquire({ wait })).release();
    }
    await clientA.locks.close();
    await waitForEmptyStore(context);
  });

  test("an idle lock ends by itself", async (context) => {
    const { locks } = await openCaching(context, context.scaleMs(200));
    await (await locks.acquire("key")).release();
    await waitForEmptyStore(context);
  });

  test("releaseAll() and close() give idle locks back", async (context) => {
    const { locks } = await openCaching(context);
    await (await locks.acquire("a")).release();
    await locks.releaseAll();
    await waitForEmptyStore(context);
    await (await locks.acquire("b")).release();
    await locks.close();
    await waitForEmptyStore(context);
  });

  test("two clients that want each other's idle locks do not wait for each other", async (context) => {
    const [clientA, clientB] = [await openCaching(context), await openCaching(context)];
    await (await clientA.locks.acquire("a")).release();
    await (await clientB.locks.acquire("b")).release();
    const wait = context.scaleMs(LOST_RECALL_MS);
    const acquired = await Promise.all([clientA.locks.acquire("b", { wait }), clientB.locks.acquire("a", { wait })]);
    for (const lock of acquired) await lock.release();
    await clientA.locks.close();
    await clientB.locks.close();
    await waitForEmptyStore(context);
  });

  // on a store that does not push recalls, the next push is a grant
  const loseRecall = ({ chaosDriver }: TestClient): void => {
    if (recall === "push") chaosDriver.loseNextPush(1);
  };

  test("a recall that is lost costs a waiter little: behind an idle lock, and behind a client that is always busy", async (context) => {
    const [clientA, clientB] = [await openCaching(context), await openTestClient(context)];
    const wait = context.scaleMs(LOST_RECALL_MS);
    await (await clientA.locks.acquire("key")).release();
    loseRecall(clientA);
    await (await clientB.locks.acquire("key", { wait })).release();
    let isOver = false;
    const busy = Array.from({ length: 4 }, async () => {
      while (!isOver) await clientA.locks.using("key", () => context.sleep(1));
    });
    try {
      for (let round = 0; round < 3; round++) {
        loseRecall(clientA);
        await (await clientB.locks.acquire("key", { wait })).release();
      }
    } finally {
      isOver = true;
      await Promise.all(busy);
    }
    await clientA.locks.close();
    await waitForEmptyStore(context);
  });

  if (settings.verbs.includes("revoke") && fencing) {
    test("an idle lock that is revoked is free at once, and its client makes a new claim", async (context) => {
      const [clientA, clientB] = [await openCaching(context), await openTestClient(context)];
      const lock = await clientA.locks.acquire("key");
      await lock.release();
      assert.equal(await clientB.locks.revoke("key", lock.token), true);
      await waitForEmptyStore(context);
      const next = await clientA.locks.acquire("key");
      assert.ok(next.token > lock.token);
      await next.release();
      await clientA.locks.close();
      await waitForEmptyStore(context);
    });
  }
}
