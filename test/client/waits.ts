/** Waits end by the grant, the timeout or the signal; none leaves a claim behind. */

import assert from "node:assert/strict";
import type { Lock } from "../../src/client/lock.ts";
import type { DefineTest, TestContext } from "../../src/conformance/context.ts";
import type { ConformanceSettings } from "../../src/conformance/options.ts";
import type { TestClient } from "../../src/conformance/test-client.ts";
import { deferRejection, hasCode, openTestClient, waitForEmptyStore } from "../../src/conformance/test-client.ts";
import type { LockTimeoutError } from "../../src/errors.ts";
import type { PausedCall } from "../../src/testing/chaos/driver.ts";
import { createRandom } from "../../src/testing/random.ts";
import { assertFree, hold, settledState, waitForClaims } from "./helpers.ts";

export function testWaits(test: DefineTest, settings: ConformanceSettings): void {
  testAborts(test);
  testMissedPushes(test, settings);

  test("waiters of one client and of others that time out leave no entry, and later waiters are granted", async (context) => {
    const [clientA, clientB] = [await openTestClient(context), await openTestClient(context, { order: "strict" })];
    const lock = await hold(clientA.locks, "key");
    const shortWaits = [clientA, clientB, clientB, clientA].map(({ locks }) =>
      deferRejection(locks.acquire("key", { wait: 60 })),
    );
    const long = [clientA, clientB].map(({ locks }) =>
      deferRejection(locks.acquire("key", { wait: context.scaleMs(5_000) })),
    );
    await Promise.all(shortWaits.map((wait) => assert.rejects(wait, hasCode("LOCK_TIMEOUT"))));
    await lock.release();
    await Promise.all(long.map(async (wait) => (await wait).release()));
    await waitForEmptyStore(context);
  });

  test("a wait that times out says how many were ahead: at the store and in its own client", async (context) => {
    const [clientA, clientB] = [await openTestClient(context), await openTestClient(context)];
    const lock = await hold(clientA.locks, "key");
    const [second, third] = [
      deferRejection(clientA.locks.acquire("key")),
      deferRejection(clientB.locks.acquire("key")),
    ];
    await waitForClaims(context, 2);
    await assert.rejects(clientB.locks.acquire("key", { wait: 50 }), (error: LockTimeoutError) => {
      hasCode("LOCK_TIMEOUT")(error);
      const isVisible = settings.traits.list !== "own";
      assert.equal(error.blocked.holder, isVisible ? "the holder" : undefined);
      const ahead = "the holder at the store if it is listed, and the earlier request of this client";
      assert.equal(error.blocked.ahead, isVisible ? 2 : 1, ahead);
      return true;
    });
    await lock.release();
    await Promise.all([second, third].map(async (wait) => (await wait).release()));
    await waitForEmptyStore(context);
  });

  test("tryAcquire and wait: 0 ask once and leave no entry", async (context) => {
    const [clientA, clientB] = [await openTestClient(context), await openTestClient(context)];
    const lock = await hold(clientA.locks, "key");
    const before = clientB.chaosDriver.countCalls("claim");
    assert.equal(await clientB.locks.tryAcquire("key"), null);
    assert.equal(clientB.chaosDriver.countCalls("claim"), before + 1);
    await assert.rejects(clientB.locks.acquire("key", { wait: 0 }), hasCode("LOCK_TIMEOUT"));
    await waitForClaims(context, 1);
    await lock.release();
    await waitForEmptyStore(context);
  });
}

function testAborts(test: DefineTest): void {
  test("an aborted waiter rejects with its signal's reason and leaves no entry", async (context) => {
    const [clientA, clientB] = [await openTestClient(context), await openTestClient(context)];
    const lock = await hold(clientA.locks, "key");
    const abort = new AbortController();
    const waits = deferRejection(clientB.locks.acquire("key", { signal: abort.signal }));
    await waitForClaims(context, 2);
    const reason = new RangeError("enough");
    abort.abort(reason);
    await assert.rejects(waits, (error) => error === reason);
    await waitForClaims(context, 1);
    await lock.release();
    await waitForEmptyStore(context);
  });

  test("a signal that was aborted before rejects at once, and nothing is sent", async (context) => {
    const { locks, chaosDriver } = await openTestClient(context);
    await assertFree(locks.mutex("warm up"), context);
    const before = chaosDriver.countCalls("claim");
    const signal = AbortSignal.abort(new RangeError("no"));
    await assert.rejects(locks.acquire("key", { signal }), RangeError);
    await assert.rejects(locks.tryAcquire("key", { signal }), RangeError);
    await assert.rejects(
      locks.using("key", { signal }, () => assert.fail("the body is not run")),
      RangeError,
    );
    assert.equal(chaosDriver.countCalls("claim"), before);
  });

  test("a signal that is aborted while the lock is held does not release it", async (context) => {
    const { locks } = await openTestClient(context);
    const abort = new AbortController();
    const lock = await locks.acquire("key", { signal: abort.signal });
    abort.abort();
    lock.throwIfLost();
    assert.ok(!lock.signal.aborted);
    assert.equal(await lock.release(), true);
  });

  for (const [step, stop] of ABORT_POINTS) {
    test(`an abort ${step} leaves nothing`, async (context) => {
      for (const isBusy of [false, true]) await assertAbortLeavesNothing(context, stop, isBusy);
    });
  }

  test("an abort while the waiting claim is being renewed leaves nothing", async (context) => {
    const [clientA, clientB] = [
      await openTestClient(context, { ttl: context.scaleLease(400) }),
      await openTestClient(context),
    ];
    const holder = await hold(clientB.locks, "key");
    const stopped = clientA.chaosDriver.pauseNext("renew", "after");
    const abort = new AbortController();
    const waits = deferRejection(clientA.locks.acquire("key", { signal: abort.signal }));
    await stopped.reached;
    abort.abort(new RangeError("enough"));
    await assert.rejects(waits, RangeError);
    stopped.resume();
    await waitForClaims(context, 1);
    await holder.release();
    await waitForEmptyStore(context);
  });

  test("aborts at random moments leave nothing, and every granted request holds", async (context) => {
    const random = createRandom(11);
    const players = [
      await openTestClient(context),
      await openTestClient(context, {}, { delayCall: 0.5, maxDelayMs: 3, seed: 5 }),
    ];
    const attempts = Array.from({ length: 60 }, async (_, index) => {
      const { locks } = players[index % 2] as TestClient;
      const abort = new AbortController();
      const pause = random.next() * 60;
      const timer = context.sleep(pause).then(() => abort.abort(new RangeError("enough")));
      try {
        const lock = await locks.acquire(`key ${index % 3}`, { signal: abort.signal });
        lock.throwIfLost();
        assert.equal(await lock.release(), true);
      } catch (error) {
        assert.ok(error instanceof RangeError, String(error));
      }
      await timer;
    });
    await Promise.all(attempts);
    await waitForEmptyStore(context);
  });
}

/** Pauses an acquire at some point; resolves when it has got there. */
type AbortPoint = (testClient: TestClient) => PausedCall;

const ABORT_POINTS: readonly (readonly [string, AbortPoint])[] = [
  ["before the claim reaches the store", ({ chaosDriver }) => chaosDriver.pauseNext("claim", "before")],
  ["before the claim reaches the store, which gets it after the release and unheard,", outrunByRelease],
  [
    "when the store has answered the claim, but its answer is on the way",
    ({ chaosDriver }) => chaosDriver.pauseNext("claim", "after"),
  ],
  ["when the claim's answer was lost", loseAnswer],
  ["when its release gets lost on the way", loseRelease],
];

function loseRelease({ chaosDriver }: TestClient): PausedCall {
  chaosDriver.loseNextCall("release", 2);
  return chaosDriver.pauseNext("claim", "after");
}

function loseAnswer({ chaosDriver }: TestClient): PausedCall {
  chaosDriver.loseNextReply("claim");
  return chaosDriver.pauseNext("claim", "after");
}

function outrunByRelease({ chaosDriver }: TestClient): PausedCall {
  const { reached, resume } = chaosDriver.pauseNext("claim", "before");
  chaosDriver.loseNextReply("claim"); // a client that saw the grant would release it
  const release = chaosDriver.pauseNext("release", "after");
  release.resume();
  return { reached, resume: () => void release.reached.then(resume) };
}

/** Pauses an acquire at some point and aborts it there; calls in flight arrive afterwards. */
async function assertAbortLeavesNothing(context: TestContext, stop: AbortPoint, isBusy: boolean): Promise<void> {
  const [clientA, clientB] = [await openTestClient(context), await openTestClient(context)];
  const holder = isBusy ? await hold(clientB.locks, "key") : null;
  const abort = new AbortController();
  const stopped = stop(clientA);
  const acquire = deferRejection(clientA.locks.acquire("key", { signal: abort.signal }));
  await stopped.reached;
  abort.abort(new RangeError("enough"));
  await assert.rejects(acquire, RangeError);
  stopped.resume();
  assert.equal(await (holder?.release() ?? true), true);
  await waitForEmptyStore(context);
  await assertFree(clientB.locks.mutex("key"), context);
  await assertFree(clientA.locks.mutex("key"), context);
}

function testMissedPushes(test: DefineTest, { traits }: ConformanceSettings): void {
  test("a grant that comes while its request is still asking is not missed", async (context) => {
    const [clientA, clientB] = [await openTestClient(context), await openTestClient(context)];
    for (let round = 0; round < 5; round++) {
      const holder = await hold(clientB.locks, "key");
      const stopped = clientA.chaosDriver.pauseNext("claim", "after");
      const waits = deferRejection(clientA.locks.acquire("key", { wait: context.scaleMs(5_000) }));
      await stopped.reached;
      await holder.release(); // the grant is announced before its waiter knows that it waits
      stopped.resume();
      assert.equal(await (await waits).release(), true);
    }
    await waitForEmptyStore(context);
  });

  test("waiters are served although every call and push is late", async (context) => {
    const chaosOptions = { delayCall: 0.8, delayPush: 0.8, repeatPush: 0.3, pushWithoutAnswer: 0.3, maxDelayMs: 5 };
    const players = [
      await openTestClient(context, {}, chaosOptions),
      await openTestClient(context, { order: "strict" }, { ...chaosOptions, seed: 2 }),
    ];
    let insideCount = 0;
    const body = async (): Promise<void> => {
      assert.equal(++insideCount, 1);
      await context.sleep(1);
      insideCount--;
    };
    const waits = players.flatMap(({ locks }) =>
      Array.from({ length: 10 }, () => locks.using("key", { wait: context.scaleMs(5_000) }, body)),
    );
    await Promise.all(waits);
    await waitForEmptyStore(context);
  });

  if (!traits.lease.claim) return;

  test("a waiter whose pushes are lost is still granted, within its lease", async (context) => {
    const ttl = context.scaleLease(900);
    const [clientA, clientB] = [await openTestClient(context, { ttl }), await openTestClient(context)];
    const holder = await clientB.locks.acquire("key", { ttl });
    clientA.chaosDriver.loseNextPush(1_000);
    const waits = deferRejection(clientA.locks.acquire("key"));
    await waitForClaims(context, 2);
    await holder.release();
    const lock: Lock = await context.waitUntil(
      "the grant",
      async () => ((await settledState(waits)) === "pending" ? null : waits),
      ttl,
    );
    assert.equal(await lock.release(), true);
  });
}
