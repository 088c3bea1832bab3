/**
 * A process floods the store with requests of its own that end without a lock: it must not cost it the locks that it holds, nor
 * anybody the keys that are free afterwards.
 */

import { expect } from "vitest";
import { delegate } from "../../src/conformance/delegate.ts";
import type { Lockable, Locks } from "../../src/index.ts";
import { createLocks } from "../../src/index.ts";
import type { Answer, Claim, ClaimId, Driver } from "../../src/spi/driver.ts";
import { until } from "./until.ts";

const FLOOD_MS = process.env.HOLDFAST_LONG === "1" ? 20_000 : 5_000;
const REQUESTS_PER_SECOND = 2_000;
const TICK_MS = 10;
/** Half of the requests wait for so long; the others are withdrawn in the turn in which they are made. */
const WAIT_MS = 100;
const HELD_OF_EACH_KIND = 7;

export interface FloodStore {
  createDriver(): Driver;
  /** What the store keeps beside live claims: tombstones, and whatever else a claim may leave. Default: not looked at. */
  countLeftovers?(): Promise<number>;
  /** The lease of claims; of sessions that of the store. */
  readonly ttlMs: number;
}

/** Every kind of lock. */
const KINDS: readonly ((locks: Locks, key: string) => Lockable)[] = [
  (locks, key) => locks.mutex(key),
  (locks, key) => locks.rw(key).read,
  (locks, key) => locks.semaphore(key, 1),
];

export async function expectOwnFloodHarmless({ createDriver, countLeftovers, ttlMs }: FloodStore): Promise<void> {
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
  const requests = new Set<Promise<unknown>>();
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
  expect(sentIds.size - held.length).toBeLessThanOrEqual(Math.ceil(count / 2));
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
