// Look-ups of queues that name the holders in the way: how many, in which order, and for how long.

import { expect, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { delegate } from "../../../src/conformance/delegate.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import type { LockTimeoutError } from "../../../src/errors.ts";
import { FakeClock } from "../../support/fake-clock.ts";

interface Fixture {
  readonly clock: FakeClock;
  readonly locks: Locks;
  /** Calls in the order in which they were sent: "renew", "release", "list key". */
  readonly calls: string[];
  readonly signals: (AbortSignal | undefined)[];
  /** The delay of a list's answer; Infinity: never answered. */
  listMs: number;
}

/** A client, and another one that holds all the keys. */
async function createFixture(keys: readonly string[]): Promise<Fixture> {
  const clock = new FakeClock();
  const store = memoryStore(clock);
  const holder = createLocks(memory({ store }), { clock, label: "the holder" });
  for (const key of keys) await holder.acquire(key, { ttl: "1h" });
  const right = memory({ store });
  const made = { clock, calls: [] as string[], signals: [] as (AbortSignal | undefined)[], listMs: 0 };
  const driver = delegate(right, {
    renew: (claims) => {
      made.calls.push("renew");
      return right.renew(claims);
    },
    release: (releases) => {
      made.calls.push("release");
      return right.release(releases);
    },
    list: (query, options) => {
      made.calls.push(`list ${query.key}`);
      made.signals.push(options.signal);
      if (made.listMs === 0) return right.list(query, options);
      return new Promise((resolve) => {
        const timer = clock.timer(() => resolve(right.list(query, options)));
        if (made.listMs < Number.POSITIVE_INFINITY) timer.set(clock.now() + made.listMs);
      });
    },
  });
  return Object.assign(made, { locks: createLocks(driver, { clock, handoffs: 1 }) });
}

const waitUntilTimeout = (locks: Locks, key: string, wait: number): Promise<LockTimeoutError> =>
  locks.acquire(key, { wait }).then(
    () => expect.fail("it was granted"),
    (error: LockTimeoutError) => error,
  );

test("waits on one key that end during a look-up share it, and so do those that end within its next duration", async () => {
  const scene = await createFixture(["k"]);
  scene.listMs = 100;
  const waits = [500, 500, 550, 599, 650, 699, 701].map((wait) => waitUntilTimeout(scene.locks, "k", wait));
  await scene.clock.advance(699);
  expect(scene.calls.filter((call) => call === "list k")).toHaveLength(1);
  await scene.clock.advance(300);
  expect(scene.calls.filter((call) => call === "list k")).toHaveLength(2);
  for (const { blocked } of await Promise.all(waits)) expect(blocked.holder).toBe("the holder");
});

test("a look-up is sent after the renewals of its turn, and before the release of its entry", async () => {
  const scene = await createFixture(["k"]);
  // the wait ends first: calls due in the same turn are sent in the order in which they were set
  const wait = waitUntilTimeout(scene.locks, "k", 3_000);
  const own = await scene.locks.acquire("own", { ttl: "9s" });
  await scene.clock.advance(3_000);
  expect(scene.calls).toEqual(["renew", "list k", "release"]);
  expect((await wait).blocked).toEqual({ holder: "the holder", heldForMs: 3_000, ahead: 1 });
  await own.release();
});

test("look-ups of a few keys run at once; the others follow after all releases", async () => {
  const keys = Array.from({ length: 10 }, (_, at) => `k${at}`);
  const scene = await createFixture(keys);
  scene.listMs = 100;
  const waits = keys.map((key) => waitUntilTimeout(scene.locks, key, 1_000));
  await scene.clock.advance(1_000);
  const verbs = (from: number): string[] => scene.calls.slice(from).map((call) => call.replace(/ .*/, ""));
  expect(verbs(0)).toEqual(["list", "list", "list", "list", "release"]);
  await scene.clock.advance(100);
  expect(verbs(5)).toEqual(["list", "list", "list", "list"]);
  await scene.clock.advance(300);
  expect(new Set(scene.calls).size, "each key once, and the release").toBe(11);
  for (const { blocked } of await Promise.all(waits)) expect(blocked.holder).toBe("the holder");
});

test("a look-up without an answer ends after its patience, and its driver is asked nothing more", async () => {
  const keys = Array.from({ length: 6 }, (_, at) => `k${at}`);
  const scene = await createFixture(keys);
  scene.listMs = Number.POSITIVE_INFINITY;
  const waits = keys.map((key) => waitUntilTimeout(scene.locks, key, 1_000));
  await scene.clock.advance(1_499);
  expect(scene.signals.map((signal) => signal?.aborted)).toEqual([false, false, false, false]);
  await scene.clock.advance(1);
  for (const { code, blocked } of await Promise.all(waits)) expect([code, blocked]).toEqual(["LOCK_TIMEOUT", {}]);
  expect(scene.signals.map((signal) => signal?.aborted)).toEqual([true, true, true, true]);
  await scene.clock.advance(10_000);
  expect(
    scene.calls.filter((call) => call.startsWith("list")),
    "those that had no turn are not sent",
  ).toHaveLength(4);
  scene.listMs = 0;
  expect((await waitUntilTimeout(scene.locks, "k5", 0)).blocked.holder, "later ones have theirs").toBe("the holder");
});
