/**
 * A process floods the store with requests of its own that end without a lock: it must not cost it the locks that it holds, nor
 * anybody the keys that are free afterwards.
 */

import { expect } from "vitest";
import type { Lockable, Locks } from "../../src/index.ts";
import { createLocks } from "../../src/index.ts";
import type { Answer, Claim, ClaimId, Driver } from "../../src/spi/driver.ts";
import { delegate } from "../../src/testing/delegate.ts";
import { until } from "../../src/testing/until.ts";

const FLOOD_MS = process.env.HOLDFAST_LONG === "1" ? 20_000 : 5_000;
const REQUESTS_PER_SECOND = 2_000;
const TICK_MS = 10;
/** Half of the requests wait for so long; the others are withdrawn in the turn in which they are made. */
const WAIT_MS = 100;
const HELD_OF_EACH_KIND = 7;
/** Requests that are withdrawn in the turn in which they are made, while the store counts its calls. */
const UNSENT_REQUESTS = 1_000;
const UNSENT_PER_TURN = 20;
/** Calls within that second which no request causes: renewals, pings, recurring checks of three clients. */
const BACKGROUND_CALLS = 100;
const SENT_REQUESTS = 10;

export interface FloodStore {
  createDriver(): Driver;
  /** What the store keeps beside live claims: tombstones, and whatever else a claim may leave. Default: not looked at. */
  countLeftovers?(): Promise<number>;
  /** How many calls the store itself has counted since its start. Default: it has no such counter. */
  countCalls?(): Promise<number>;
  /** The lease of claims; of sessions that of the store. */
  readonly ttlMs: number;
}

/** Every kind of lock. */
const KINDS: readonly ((locks: Locks, key: string) => Lockable)[] = [
  (locks, key) => locks.mutex(key),
  (locks, key) => locks.rw(key).read,
  (locks, key) => locks.semaphore(key, 1),
];

export async function expectOwnFloodHarmless(store: FloodStore): Promise<void> {
  const { createDriver, countLeftovers, countCalls, ttlMs } = store;
  const otherDriver = createDriver();
  const other = createLocks(otherDriver);
  const driver = createDriver();
  const sentIds = new Set<ClaimId>();
  const claim = (made: Claim): Promise<Answer> => {
    sentIds.add(made.id);
    return driver.claim(made);
  };
  const locks = createLocks(delegate(driver, { claim }), { ttl: ttlMs });
  const lost: string[] = [];
  locks.on("lost", ({ keys, reason }) => void lost.push(`${keys.join()}: ${reason}`));
  const occupied = await Promise.all(KINDS.map((_, kind) => other.acquire(`busy ${kind}`)));
  const held = await Promise.all(
    KINDS.flatMap((toLockable, kind) =>
      Array.from({ length: HELD_OF_EACH_KIND }, (_, index) => toLockable(locks, `held ${kind} ${index}`).acquire()),
    ),
  );
  if (countCalls !== undefined) await expectNoCallsForUnsent(locks, countCalls);
  const requests = new Set<Promise<unknown>>();
  const sentBefore = sentIds.size;
  let count = 0;
  const request = (): void => {
    const kind = count++ % KINDS.length;
    const lockable = (KINDS[kind] as (typeof KINDS)[number])(locks, `busy ${kind}`);
    const abort = new AbortController();
    const isWithdrawn = count % 2 === 0;
    const pending = lockable.acquire(isWithdrawn ? { signal: abort.signal } : { wait: WAIT_MS });
    const settled = pending.then(
      () => expect.unreachable("the key is held"),
      () => undefined,
    );
    requests.add(settled);
    void settled.finally(() => requests.delete(settled));
    if (isWithdrawn) abort.abort();
  };
  const endsAt = performance.now() + FLOOD_MS;
  let dueCount = 0;
  while (performance.now() < endsAt) {
    dueCount = Math.min(dueCount + (REQUESTS_PER_SECOND * TICK_MS) / 1_000, count + 2 * TICK_MS);
    while (count < dueCount) request();
    await new Promise((resolve) => setTimeout(resolve, TICK_MS));
  }
  await Promise.all(requests);
  // nothing was sent for those that were withdrawn at once
  expect(sentIds.size - sentBefore).toBeLessThanOrEqual(Math.ceil(count / 2));
  expect(lost, `locks that ${count} requests have cost`).toEqual([]);
  for (const lock of held) lock.throwIfLost();
  for (const lock of occupied) await lock.release();
  const freedAt = performance.now();
  for (const kind of KINDS.keys()) await (await locks.acquire(`busy ${kind}`, { wait: ttlMs })).release();
  const tookMs = performance.now() - freedAt;
  // 100 ms on a quiet machine; what waits behind a flood of releases takes seconds
  expect(tookMs).toBeLessThan(1_000);
  for (const lock of held) expect(await lock.release()).toBe(true);
  await until(async () => (await otherDriver.list({ prefix: "" }, { max: 10 })).items.length === 0, {
    within: 2 * ttlMs,
    what: "the claims to go",
  });
  if (countLeftovers !== undefined)
    await until(async () => (await countLeftovers()) === 0, {
      within: 2 * ttlMs + 2_000,
      what: "what they left to go",
    });
  await Promise.all([locks.close(), other.close()]);
}

/** On keys that another client holds. */
async function expectNoCallsForUnsent(locks: Locks, countCalls: () => Promise<number>): Promise<void> {
  const toLockable = (index: number): Lockable => {
    const kind = index % KINDS.length;
    return (KINDS[kind] as (typeof KINDS)[number])(locks, `busy ${kind}`);
  };
  const before = await countCalls();
  for (let made = 0; made < UNSENT_REQUESTS; made += UNSENT_PER_TURN) {
    const requests = Array.from({ length: UNSENT_PER_TURN }, (_, index) => {
      const abort = new AbortController();
      const pending = toLockable(index).acquire({ signal: abort.signal });
      abort.abort();
      return pending;
    });
    const settled = await Promise.allSettled(requests);
    expect(new Set(settled.map(({ status }) => status))).toEqual(new Set(["rejected"]));
    await new Promise((resolve) => setTimeout(resolve, TICK_MS));
  }
  const unsentCalls = (await countCalls()) - before;
  expect(unsentCalls, `calls for ${UNSENT_REQUESTS} requests that were never sent`).toBeLessThan(BACKGROUND_CALLS);
  // the counter does count requests that are sent
  for (let index = 0; index < SENT_REQUESTS; index++)
    await expect(toLockable(index).acquire({ wait: 2 * TICK_MS })).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
  expect((await countCalls()) - before - unsentCalls).toBeGreaterThanOrEqual(SENT_REQUESTS);
}
