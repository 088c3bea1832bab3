// Two thousand waits that end at once, by their time, by a signal and by close(): whoever is told who holds the key, it
// costs nobody a lock, and no place stays. With default options, as users have them.

import { expect } from "vitest";
import type { Locks } from "../../src/client/locks.ts";
import { createLocks } from "../../src/client/locks.ts";
import type { LockTimeoutError } from "../../src/errors.ts";
import type { Driver } from "../../src/spi/driver.ts";
import { delegate } from "../../src/testing/delegate.ts";
import { until } from "../../src/testing/until.ts";

const WAITERS_PER_GROUP = 667;
const WAIT_MS = 1_000;
/**
 * No place is left after a second: far less than a lease or a session, so what stays longer was not given back. Only a busy
 * machine takes longer, most of all with ZooKeeper's nodes: it is allowed twice the time that lining up has just taken.
 */
const CLEANUP_TIMEOUT_MS = 1_000;
const BUSY = 2;

export interface BulkCancellationStore {
  /** Another client of one store. */
  createDriver(): Driver;
  /** How many places the store has on this key, read past the drivers that are tested. */
  countEntries(key: string): Promise<number>;
}

interface ListCalls {
  maxConcurrent: number;
  concurrent: number;
  readonly filters: Set<string>;
}

/** The driver, and what it is asked to list. */
function observeLists(driver: Driver): { readonly driver: Driver; readonly looks: ListCalls } {
  const listCalls: ListCalls = { maxConcurrent: 0, concurrent: 0, filters: new Set() };
  const list: Driver["list"] = async (query, options) => {
    listCalls.filters.add(JSON.stringify(query));
    listCalls.maxConcurrent = Math.max(listCalls.maxConcurrent, ++listCalls.concurrent);
    try {
      return await driver.list(query, options);
    } finally {
      listCalls.concurrent--;
    }
  };
  return { driver: delegate(driver, { list }), looks: listCalls };
}

/** The codes and holders that waits ended with. */
type WaitOutcomes = { readonly codes: Set<unknown>; readonly holders: Set<unknown> };

function startWaits(
  locks: Locks,
  options: { wait?: number; signal?: AbortSignal },
  waitOutcomes: WaitOutcomes,
): Promise<unknown> {
  return Promise.all(
    Array.from({ length: WAITERS_PER_GROUP }, () =>
      // readers have no common place: each has one of its own at the store
      locks
        .rw("crowded")
        .read.acquire({ ...options, label: "one of many" })
        .then(
          () => waitOutcomes.codes.add("granted"),
          (error: LockTimeoutError) => {
            waitOutcomes.codes.add(error.code);
            waitOutcomes.holders.add(error.blocked?.holder);
          },
        ),
    ),
  );
}

export async function expectBulkCancellationLeavesNothing({
  createDriver,
  countEntries,
}: BulkCancellationStore): Promise<void> {
  const [far, other] = [createLocks(createDriver()), createLocks(createDriver())];
  const lists = observeLists(createDriver());
  const locks = createLocks(lists.driver);
  const events: string[] = [];
  for (const event of ["jeopardy", "lost", "storeDown"] as const) locks.on(event, () => events.push(event));
  const writer = await far.rw("crowded").write.acquire({ label: "the holder" });
  const ownLock = await locks.acquire("its own");
  const createOutcomes = (): WaitOutcomes => ({ codes: new Set(), holders: new Set() });
  const [late, aborted, closed] = [createOutcomes(), createOutcomes(), createOutcomes()];
  const abort = new AbortController();
  const startedAt = performance.now();
  const waits = [
    startWaits(locks, { wait: WAIT_MS }, late),
    startWaits(locks, { signal: abort.signal }, aborted),
    startWaits(other, {}, closed),
  ];
  await until(async () => (await countEntries("crowded")) === 1 + 3 * WAITERS_PER_GROUP || late.codes.size > 0, {
    within: 60_000,
    what: "the crowd",
  });
  const timeoutMs = Math.max(CLEANUP_TIMEOUT_MS, BUSY * (performance.now() - startedAt));
  abort.abort(Object.assign(new Error("enough"), { code: "ENOUGH" }));
  const closing = other.close();
  await Promise.all([...waits, closing]);
  const isQueueShort = async (): Promise<boolean> => (await countEntries("crowded")) === 1;
  await until(isQueueShort, { within: timeoutMs, what: "the places of the crowd to go" });
  expect([late.codes, aborted.codes, closed.codes].map((codes) => [...codes])).toEqual([
    ["LOCK_TIMEOUT"],
    ["ENOUGH"],
    ["LOCK_CLOSED"],
  ]);
  // who could not be told in half a second is told no name, and never a wrong one
  for (const holder of late.holders) expect(["the holder", undefined]).toContain(holder);
  expect([...lists.looks.filters], "the one queue is looked at").toEqual(['{"key":"crowded"}']);
  expect(lists.looks.maxConcurrent, "at most one look at a time").toBe(1);
  expect(ownLock.signal.aborted).toBe(false);
  expect(events).toEqual([]);
  expect(await ownLock.release()).toBe(true);
  expect(await writer.release()).toBe(true);
  await Promise.all([far.close(), locks.close()]);
  expect(await countEntries("crowded")).toBe(0);
}
