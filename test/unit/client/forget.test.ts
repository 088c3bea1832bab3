// How a driver learns that a claim has ended: by its release, the answer "none", or forget() for one that another client has.

import { beforeEach, expect, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import type { ChaosDriver } from "../../../src/testing/chaos/driver.ts";
import { chaos } from "../../../src/testing/chaos/driver.ts";
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

/** Another client of the store. */
const openOther = (): Locks => createLocks(memory({ store }), { clock, ttl: "60s" });

const expectEnded = (forgottenCount: number): void =>
  expect([ledger.forgotten.length, ledger.openClaims.size]).toEqual([forgottenCount, 0]);
const expectOpen = (): void => expect([ledger.forgotten.length, ledger.openClaims.size]).toEqual([0, 1]);

test("a lock that is released, a refusal, and a wait that was given up are not forgotten: the driver has seen their ends", async () => {
  const lock = await locks.acquire("k");
  expectOpen();
  await lock.release();
  expectEnded(0);
  await openOther().acquire("busy");
  expect(await locks.tryAcquire("busy")).toBeNull();
  await clock.advance(0);
  expectEnded(0);
  const waiting = locks.acquire("busy", { wait: 1_000 }).catch(() => null);
  await clock.advance(500);
  expectOpen();
  await clock.advance(500);
  expect(await waiting).toBeNull();
  expectEnded(0);
});

test("an abandoned request is released at once, and again when its claim call has made an entry", async () => {
  const paused = link.pauseNext("claim", "after");
  const abort = new AbortController();
  const acquired = locks.acquire("k", { signal: abort.signal }).catch(() => null);
  await clock.advance(0);
  abort.abort();
  await clock.advance(100);
  expect(await acquired).toBeNull();
  expect(link.countCalls("release")).toBe(1);
  paused.resume();
  await clock.advance(0);
  expect(link.countCalls("release")).toBe(2);
  expectEnded(0);
});

test("a lost lock ends with its release, not at its loss", async () => {
  const lock = await locks.acquire("k");
  link.disconnect();
  await clock.advance(9_000);
  expect(() => lock.throwIfLost()).toThrow(/lost/);
  expectOpen();
  link.reconnect();
  await lock.release();
  await clock.advance(9_000);
  expectEnded(0);
});

test("a detached lock is forgotten; an attached one is another claim with the same id", async () => {
  const reference = await (await locks.acquire("k")).detach();
  expectEnded(1);
  const lock = await locks.attach(reference);
  expect(ledger.openClaims.size).toBe(1);
  await lock.release();
  expectEnded(1);
});

test("a lock that was given up by a detach whose answer did not come in time is forgotten, and the late answer ignored", async () => {
  const lock = await locks.acquire("k");
  const paused = link.pauseNext("detach", "after");
  const detached = lock.detach({ ttl: 1_000 }).catch(() => null);
  await clock.advance(999);
  expectOpen();
  await clock.advance(1);
  expect(await detached).toBeNull();
  expectEnded(1);
  paused.resume();
  await clock.advance(0);
  expectEnded(1);
});

test("a lock that could not be attached for want of an answer is forgotten", async () => {
  const reference = await (await openOther().acquire("k", { ttl: "9s" })).detach();
  link.loseNextCall("renew", 1_000);
  const attached = locks.attach(reference).catch(() => null);
  await clock.advance(9_000);
  expect(await attached).toBeNull();
  expectEnded(1);
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
  expectEnded(0);
});
