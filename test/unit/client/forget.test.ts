// When the core tells the driver that a claim is over: once, when its last call has settled and its release is not
// repeated any more.

import { afterEach, beforeEach, expect, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import type { ChaosDriver } from "../../../src/conformance/chaos/driver.ts";
import { chaos } from "../../../src/conformance/chaos/driver.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import type { ClaimLedger } from "../../support/claim-ledger.ts";
import { createClaimLedger } from "../../support/claim-ledger.ts";
import { FakeClock } from "../../support/fake-clock.ts";

let clock: FakeClock;
let store: ReturnType<typeof memoryStore>;
let link: ChaosDriver;
let ledger: ClaimLedger;
let locks: Locks;

beforeEach(() => {
  clock = new FakeClock();
  store = memoryStore(clock);
  link = chaos(memory({ store }));
  ledger = createClaimLedger(link);
  locks = createLocks(ledger.driver, { clock, ttl: "9s" });
});

afterEach(() => {
  expect(ledger.violations).toEqual([]);
});

/** Another client of the store. */
const openOther = (): Locks => createLocks(memory({ store }), { clock, ttl: "60s" });

const expectForgotten = (count: number): void =>
  expect([ledger.forgotten.size, ledger.openClaims.size]).toEqual([count, 0]);
const expectOpen = (): void => expect([ledger.forgotten.size, ledger.openClaims.size]).toEqual([0, 1]);

test("after the release of a lock, and after a refusal", async () => {
  const lock = await locks.acquire("k");
  expectOpen();
  await lock.release();
  expectForgotten(1);
  await openOther().acquire("busy");
  expect(await locks.tryAcquire("busy")).toBeNull();
  await clock.advance(0);
  expectForgotten(2);
});

test("after the answer to a repeated release, not after the first attempt", async () => {
  const lock = await locks.acquire("k");
  link.loseNextReply("release", 2);
  const released = lock.release();
  await clock.advance(0);
  expect(link.countCalls("release")).toBe(1);
  expectOpen();
  await clock.advance(9_000);
  await released;
  expect(link.countCalls("release")).toBe(3);
  expectForgotten(1);
});

test("when a release is given up", async () => {
  const lock = await locks.acquire("k");
  link.loseNextCall("release", 1_000);
  const released = lock.release();
  await clock.advance(8_999);
  expectOpen();
  await clock.advance(1);
  await released;
  expectForgotten(1);
});

test("after the answer to the claim call of an abandoned request, and after the release that it needs", async () => {
  const paused = link.pauseNext("claim", "after");
  const abort = new AbortController();
  const acquired = locks.acquire("k", { signal: abort.signal }).catch(() => null);
  await clock.advance(0);
  abort.abort();
  await clock.advance(100);
  expect(await acquired).toBeNull();
  expect(link.countCalls("release")).toBe(1);
  expectOpen();
  paused.resume();
  await clock.advance(0);
  expect(link.countCalls("release")).toBe(2);
  expectForgotten(1);
});

test("after a wait that was given up", async () => {
  await openOther().acquire("busy");
  const waiting = locks.acquire("busy", { wait: 1_000 }).catch(() => null);
  await clock.advance(1_000);
  expect(await waiting).toBeNull();
  expectForgotten(1);
});

test("after the release of a lost lock, not at its loss", async () => {
  const lock = await locks.acquire("k");
  link.disconnect();
  await clock.advance(9_000);
  expect(() => lock.throwIfLost()).toThrow(/lost/);
  expectOpen();
  link.reconnect();
  await lock.release();
  await clock.advance(9_000);
  expectForgotten(1);
});

test("after a detach; an attached lock is another claim with the same id", async () => {
  const reference = await (await locks.acquire("k")).detach();
  expectForgotten(1);
  const lock = await locks.attach(reference);
  expect(ledger.openClaims.size).toBe(1);
  await lock.release();
  expect([...ledger.forgotten.values()]).toEqual([2]);
});

test("not while an attached lock has the id of one that was detached during a renewal", async () => {
  const lock = await locks.acquire("k");
  const paused = link.pauseNext("renew", "after");
  await clock.advance(3_000);
  const reference = await lock.detach();
  const attached = await locks.attach(reference);
  paused.resume();
  await clock.advance(0);
  expectOpen();
  await attached.release();
  expectForgotten(1);
});

test("after a detach whose answer came too late", async () => {
  const lock = await locks.acquire("k");
  const paused = link.pauseNext("detach", "after");
  const detached = lock.detach({ ttl: 1_000 }).catch(() => null);
  await clock.advance(1_000);
  expect(await detached).toBeNull();
  expectOpen();
  paused.resume();
  await clock.advance(0);
  expectForgotten(1);
});

test("after an attach without an answer", async () => {
  const reference = await (await openOther().acquire("k", { ttl: "9s" })).detach();
  link.loseNextCall("renew", 1_000);
  const attached = locks.attach(reference).catch(() => null);
  await clock.advance(9_000);
  expect(await attached).toBeNull();
  expectForgotten(1);
});

test("close() forgets the locks and waits that it ends; later answers are ignored", async () => {
  await openOther().acquire("busy");
  await locks.acquire("k");
  const paused = link.pauseNext("claim", "after");
  const waits = [locks.acquire("busy"), locks.acquire("late")].map((wait) => wait.catch(() => null));
  await clock.advance(0);
  await locks.close();
  await Promise.all(waits);
  expect([ledger.forgotten.size, ledger.openClaims.size]).toEqual([2, 1]);
  paused.resume();
  await clock.advance(0);
  expect([ledger.forgotten.size, ledger.openClaims.size]).toEqual([2, 1]);
});

test("nothing stays open of 10,000 claims whose answers are lost at random", async () => {
  link = chaos(memory({ store }), { seed: 7, loseCall: 0.1, loseReply: 0.2, losePush: 0.5 });
  ledger = createClaimLedger(link);
  locks = createLocks(ledger.driver, { clock, ttl: "9s", wait: "3s" });
  const work = Array.from({ length: 10_000 }, (_, index) =>
    locks.using(`k${index % 4_000}`, { wait: (index % 7) * 500 }, () => undefined).catch(() => undefined),
  );
  await clock.advance(60_000);
  await Promise.all(work);
  expect(ledger.openClaims.size).toBe(0);
  expect(ledger.forgotten.size).toBeGreaterThan(4_000);
});
