// Look-ups of queues that name the holders in the way: how many, in which order, and for how long.

import { expect, test } from "vitest";
import type { Engine } from "../../../src/client/engine.ts";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { QueueReader } from "../../../src/client/queue-reader.ts";
import { Scheduler } from "../../../src/client/scheduler.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import type { LockTimeoutError } from "../../../src/errors.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
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
  const inner = memory({ store });
  const fixture = { clock, calls: [] as string[], signals: [] as (AbortSignal | undefined)[], listMs: 0 };
  const driver = delegate(inner, {
    renew: (claims) => {
      fixture.calls.push("renew");
      return inner.renew(claims);
    },
    release: (releases) => {
      fixture.calls.push("release");
      return inner.release(releases);
    },
    list: (query, options) => {
      fixture.calls.push(`list ${query.key}`);
      fixture.signals.push(options.signal);
      if (fixture.listMs === 0) return inner.list(query, options);
      return new Promise((resolve) => {
        const timer = clock.timer(() => resolve(inner.list(query, options)));
        if (fixture.listMs < Number.POSITIVE_INFINITY) timer.set(clock.now() + fixture.listMs);
      });
    },
  });
  return Object.assign(fixture, { locks: createLocks(driver, { clock, order: "strict" }) });
}

const waitUntilTimeout = (locks: Locks, key: string, wait: number): Promise<LockTimeoutError> =>
  locks.acquire(key, { wait }).then(
    () => expect.fail("it was granted"),
    (error: LockTimeoutError) => error,
  );

test("waits on one key that end during a look-up share it, and so do those that end within its next duration", async () => {
  const fixture = await createFixture(["k"]);
  fixture.listMs = 100;
  const waits = [500, 500, 550, 599, 650, 699, 701].map((wait) => waitUntilTimeout(fixture.locks, "k", wait));
  await fixture.clock.advance(699);
  expect(fixture.calls.filter((call) => call === "list k")).toHaveLength(1);
  await fixture.clock.advance(300);
  expect(fixture.calls.filter((call) => call === "list k")).toHaveLength(2);
  for (const { blocked } of await Promise.all(waits)) expect(blocked.holder).toBe("the holder");
});

test("a look-up is sent after the renewals of its turn, and before the release of its entry", async () => {
  const fixture = await createFixture(["k"]);
  // the wait ends first: calls due in the same turn are sent in the order in which they were set
  const wait = waitUntilTimeout(fixture.locks, "k", 3_000);
  const ownLock = await fixture.locks.acquire("own", { ttl: "9s" });
  await fixture.clock.advance(3_000);
  expect(fixture.calls.slice(-3)).toEqual(["renew", "list k", "release"]);
  expect((await wait).blocked).toEqual({ holder: "the holder", heldForMs: 3_000, ahead: 1 });
  await ownLock.release();
});

test("renewals that a turn collects after it has asked for a look-up are sent before it", async () => {
  const clock = new FakeClock();
  const calls: string[] = [];
  const inner = memory({ store: memoryStore(clock) });
  const driver = delegate(inner, {
    list: (query, options) => {
      calls.push("list");
      return inner.list(query, options);
    },
  });
  await driver.open(NO_EVENTS);
  const engine = {
    driver,
    clock,
    scheduler: new Scheduler(clock, () => undefined),
    flushRenewals: () => calls.push("renew"),
  };
  await new QueueReader(engine as unknown as Engine).read("k");
  expect(calls).toEqual(["renew", "list"]);
});

test("look-ups of a few keys run at once; the others follow after all releases", async () => {
  const keys = Array.from({ length: 10 }, (_, index) => `k${index}`);
  const fixture = await createFixture(keys);
  fixture.listMs = 100;
  const waits = keys.map((key) => waitUntilTimeout(fixture.locks, key, 1_000));
  await fixture.clock.advance(1_000);
  // beside them the waiters ask for their locks again
  const calls = (): string[] => fixture.calls.filter((call) => call !== "renew");
  const verbs = (from: number): string[] =>
    calls()
      .slice(from)
      .map((call) => call.replace(/ .*/, ""));
  expect(verbs(0)).toEqual(["list", "list", "list", "list", "release"]);
  await fixture.clock.advance(100);
  expect(verbs(5)).toEqual(["list", "list", "list", "list"]);
  await fixture.clock.advance(300);
  expect(new Set(calls()).size, "each key once, and the release").toBe(11);
  for (const { blocked } of await Promise.all(waits)) expect(blocked.holder).toBe("the holder");
});

test("a look-up without an answer ends after its patience, and its driver is asked nothing more", async () => {
  const keys = Array.from({ length: 6 }, (_, index) => `k${index}`);
  const fixture = await createFixture(keys);
  fixture.listMs = Number.POSITIVE_INFINITY;
  const waits = keys.map((key) => waitUntilTimeout(fixture.locks, key, 1_000));
  await fixture.clock.advance(1_499);
  expect(fixture.signals.map((signal) => signal?.aborted)).toEqual([false, false, false, false]);
  await fixture.clock.advance(1);
  for (const { code, blocked } of await Promise.all(waits)) expect([code, blocked]).toEqual(["LOCK_TIMEOUT", {}]);
  expect(fixture.signals.map((signal) => signal?.aborted)).toEqual([true, true, true, true]);
  await fixture.clock.advance(10_000);
  expect(
    fixture.calls.filter((call) => call.startsWith("list")),
    "those that had no turn are not sent",
  ).toHaveLength(4);
  fixture.listMs = 0;
  expect((await waitUntilTimeout(fixture.locks, "k5", 0)).blocked.holder, "later ones have theirs").toBe("the holder");
});
