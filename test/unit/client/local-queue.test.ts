// Queries of a local hold change nothing: only observe() applies what the clocks show, and what users call observes first.

import { expect, test } from "vitest";
import type { LocalHold } from "../../../src/client/local-queue.ts";
import type { Lock, LockHandle } from "../../../src/client/lock.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import type { FakeClock } from "../../support/fake-clock.ts";
import { fakeClock } from "../../support/fake-clock.ts";

interface Fixture {
  readonly clock: FakeClock;
  readonly lock: Lock;
  readonly localHold: LocalHold;
  /** The events of the client, in order. */
  readonly events: string[];
}

/** A lock of 10 s without renewals, so that no timer reports anything. */
async function createFixture(): Promise<Fixture> {
  const clock = fakeClock();
  const locks = createLocks(memory({ store: memoryStore(clock) }), { clock, ttl: "10s", renew: false });
  const events: string[] = [];
  for (const name of ["lost", "clockStep", "jeopardy"] as const) locks.on(name, () => events.push(name));
  const lock = await locks.acquire("k");
  return { clock, lock, localHold: (lock as LockHandle).localHolds[0], events };
}

test("isHeld() and remainingMs() answer for a time and report no loss; observe() reports it", async () => {
  const { clock, localHold, events } = await createFixture();
  const grantedAt = clock.now();
  await clock.advance(9_000);
  expect([localHold.isHeld(grantedAt + 8_999), localHold.remainingMs(grantedAt + 8_999)]).toEqual([true, 1]);
  expect([localHold.isHeld(clock.now()), localHold.remainingMs(clock.now())]).toEqual([false, 0]);
  expect([localHold.lostReason, events]).toEqual([null, []]);
  expect(localHold.observe()).toBe(clock.now());
  expect([localHold.lostReason, events]).toEqual(["expired", ["lost"]]);
});

test("a suspension changes nothing until observe() has compared the clocks", async () => {
  const { clock, localHold, events } = await createFixture();
  clock.suspend(60_000);
  expect([localHold.isHeld(clock.now()), events]).toEqual([true, []]);
  localHold.observe();
  expect(localHold.isHeld(clock.now())).toBe(false);
  expect(events).toContain("clockStep");
});

for (const [name, call] of [
  ["signal", (lock) => lock.signal],
  ["remainingMs", (lock) => lock.remainingMs],
  ["release()", (lock) => lock.release()],
] as const satisfies readonly [string, (lock: Lock) => unknown][]) {
  test(`${name} observes the clocks`, async () => {
    const { clock, lock, events } = await createFixture();
    clock.suspend(60_000);
    await call(lock);
    expect(events).toContain("clockStep");
  });
}

test("throwIfLost() observes the clocks, and throws after a suspension longer than the lease", async () => {
  const { clock, lock, events } = await createFixture();
  clock.suspend(60_000);
  expect(() => lock.throwIfLost()).toThrow(/lost the lock/);
  expect(events).toContain("clockStep");
});
