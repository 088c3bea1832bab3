/** The option guardDataLoss on files that are replaced, copied, overwritten, or lose rows. */

import { renameSync, rmSync } from "node:fs";
import Database from "libsql";
import { afterEach, expect, test } from "vitest";
import type { SqliteOptions } from "../../../src/drivers/sql/sqlite/driver.ts";
import { sqlite } from "../../../src/drivers/sql/sqlite/driver.ts";
import { createLocks } from "../../../src/index.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { withHeldTokens } from "../../support/held-tokens.ts";
import { toReleases } from "../../support/releases.ts";
import { expectHeld } from "../../support/server-fixture.ts";
import type { LossScenario } from "../../support/stores/data-loss-scenario.ts";
import {
  exclusive,
  expectHoldersInOrder,
  expectLockKept,
  expectNoLossAfterEnd,
  expectNotRestoredAfterSleep,
  MAX_TTL_MS,
} from "../../support/stores/data-loss-scenario.ts";
import { markLongInUse, SqliteInspector, useSqliteFiles } from "../../support/stores/sqlite.ts";

const newFile = useSqliteFiles();
const closers: (() => Promise<unknown>)[] = [];
let warnings: string[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
  warnings = [];
});

async function open(path: string, options: SqliteOptions = {}): Promise<Driver> {
  const guardDataLoss = { maxTtlMs: MAX_TTL_MS };
  const opened = sqlite(path, { guardDataLoss, warn: (text) => warnings.push(text), ...options });
  const driver = withHeldTokens(opened, options.clock);
  await driver.open(NO_EVENTS);
  closers.push(() => driver.close());
  return driver;
}

async function newGuardedFile(): Promise<string> {
  const path = newFile();
  await markLongInUse(path);
  return path;
}

function execute(path: string, text: string): void {
  const database = new Database(path);
  database.exec(text);
  database.close();
}

/** A consistent copy of what is committed. */
function backUp(path: string, copy: string): void {
  execute(path, `vacuum into '${copy}'`);
}

/** Puts an older state into the same file, in a transaction, as the backup API does. */
function overwrite(path: string, copy: string): void {
  const tables = ["claims", "buckets", "tombstones", "identity"].map((word) => `holdfast_2_${word}`);
  const replace = tables.map((table) => `delete from ${table}; insert into ${table} select * from copy.${table};`);
  execute(path, `attach '${copy}' as copy; begin immediate; ${replace.join(" ")} commit`);
}

async function inspect(path: string, isPaused: boolean): Promise<string[]> {
  const inspector = new SqliteInspector(path);
  try {
    return await inspector.findViolations({ isPaused });
  } finally {
    inspector.close();
  }
}

const endGracePeriod = (path: string): void =>
  execute(path, "update holdfast_2_identity set grace_begins = 0, grace_ends = 0");

const LOSSES: readonly (readonly [what: string, lose: (path: string, copy: string) => void])[] = [
  [
    "a file replaced by a copy",
    (path, copy) => {
      for (const suffix of ["", "-wal", "-shm"]) rmSync(`${path}${suffix}`, { force: true });
      renameSync(copy, path);
    },
  ],
  [
    "a deleted file",
    (path) => {
      for (const suffix of ["", "-wal", "-shm"]) rmSync(`${path}${suffix}`, { force: true });
    },
  ],
  ["a file overwritten with an older state", overwrite],
];

async function scenarioOf(lose: (path: string, copy: string) => void): Promise<LossScenario> {
  const path = await newGuardedFile();
  const copy = `${path}.copy`;
  return {
    holder: await open(path),
    other: await open(path),
    backUp: async () => backUp(path, copy),
    lose: async () => lose(path, copy),
    endGracePeriod: async () => endGracePeriod(path),
    inspect: (isPaused) => inspect(path, isPaused),
  };
}

test.each(LOSSES)("%s: no lock of a live holder is granted, which keeps it with its token", async (_, lose) => {
  await expectLockKept(await scenarioOf(lose));
});

test("rows that only vanish are missed by their holder: a grace period begins when it renews", async () => {
  const scenario = await scenarioOf((path) => execute(path, "delete from holdfast_2_claims"));
  await expectLockKept({ ...scenario, isSeenByHolderOnly: true });
});

test("of holders that could not have held together those with the lowest tokens end; the others stay, in order", async () => {
  await expectHoldersInOrder(await scenarioOf(overwrite));
});

test("a claim that is gone after the end of its lease is not reported as lost", async () => {
  const path = await newGuardedFile();
  const late = await open(path, { guardDataLoss: false });
  await expectNoLossAfterEnd({ late, other: await open(path, { guardDataLoss: false }), warnings });
});

test("a holder that slept beyond the end of its lease does not restore its claim", async () => {
  const path = await newGuardedFile();
  const clock = new FakeClock();
  await expectNotRestoredAfterSleep({
    sleeper: await open(path, { clock }),
    clock,
    other: await open(path),
    lose: async () => execute(path, "delete from holdfast_2_claims; update holdfast_2_identity set file = ''"),
    inspect: () => inspect(path, true),
  });
});

test("a grace period is as long as the longest ttl of its clients, and a second loss begins another one", async () => {
  const path = newFile();
  await open(path, { guardDataLoss: { maxTtlMs: 5_000 } });
  expect(warnings.filter((text) => /grace period.*no locks are granted for [1-5]?\d{1,3} ms/.test(text))).toHaveLength(
    1,
  );
  const driver = await open(path, { guardDataLoss: { maxTtlMs: 600_000 } });
  const pause = async (): Promise<number> => {
    const answer = await driver.claim(exclusive({ wait: false }));
    return answer.state === "none" ? (answer.paused?.remainingMs ?? 0) : 0;
  };
  expect(await pause()).toBeGreaterThan(500_000);
  await open(path, { guardDataLoss: { maxTtlMs: 5_000 } });
  expect(await pause()).toBeGreaterThan(500_000);
  endGracePeriod(path);
  const held = exclusive();
  expectHeld(await driver.claim(held));
  // while a key is held a claim is refused because of its holder, not because of a grace period
  await driver.release(toReleases(held));
  execute(path, "delete from holdfast_2_identity");
  expect(await pause()).toBeGreaterThan(590_000);
  // after a step back of the clock it lasts no longer than its length
  execute(path, "update holdfast_2_identity set grace_begins = grace_begins + 1e12, grace_ends = grace_ends + 1e12");
  const afterStep = await pause();
  expect(afterStep).toBeGreaterThan(590_000);
  expect(afterStep).toBeLessThanOrEqual(605_000);
});

test("a lease that could outlast a grace period is refused; without the option a loss is reported to its holder", async () => {
  const path = await newGuardedFile();
  const driver = await open(path);
  await expect(driver.claim(exclusive({ ttlMs: MAX_TTL_MS + 1 }))).rejects.toThrow(
    `sqlite: the ttl of ${MAX_TTL_MS + 1} ms exceeds guardDataLoss.maxTtlMs (${MAX_TTL_MS} ms)`,
  );
  const unguarded = await open(path, { guardDataLoss: false });
  const claim = exclusive();
  expectHeld(await unguarded.claim(claim));
  execute(path, "delete from holdfast_2_claims");
  expect(await unguarded.renew([claim])).toEqual([{ state: "none" }]);
  expect(warnings).toEqual([expect.stringContaining("the database has lost a lock that this client held")]);
});

test("clients with short leases keep their locks, and waiters get theirs in order when the grace period is over", async () => {
  const path = await newGuardedFile();
  const copy = `${path}.copy`;
  const options = { guardDataLoss: { maxTtlMs: 2_000 }, silenceWarnings: ["guardDataLoss"] } as const;
  const clients = [1, 2, 3].map(() =>
    createLocks(sqlite(path, { warn: () => undefined, ...options }), { ttl: "2s", order: "strict" }),
  );
  for (const client of clients) closers.push(() => client.close());
  const [first, second, third] = clients as [(typeof clients)[0], (typeof clients)[0], (typeof clients)[0]];
  // what a process has not seen it cannot miss
  backUp(path, copy);
  for (const client of clients) await (await client.acquire("other")).release();
  const lock = await first.acquire("key");
  const order: string[] = [];
  const inTurn = async (client: typeof first, name: string): Promise<bigint> => {
    const next = await client.acquire("key");
    order.push(name);
    expect(lock.signal.aborted).toBe(false);
    await next.release();
    return next.token;
  };
  const turns = [inTurn(second, "second")];
  await until(async () => (await second.list("key")).length === 2, { within: 5_000, what: "the waiter" });
  const lostAt = performance.now();
  overwrite(path, copy);
  await expect(third.tryAcquire("other")).rejects.toMatchObject({ code: "LOCK_STORE_PAUSED", reason: "gracePeriod" });
  const other = await third.acquire("other");
  expect(performance.now() - lostAt).toBeGreaterThanOrEqual(1_900);
  turns.push(inTurn(third, "third"));
  await until(async () => (await second.list("key")).length === 3, { within: 5_000, what: "the second waiter" });
  lock.throwIfLost();
  expect(order).toEqual([]);
  expect(await lock.release()).toBe(true);
  const tokens = await Promise.all(turns);
  expect(order).toEqual(["second", "third"]);
  expect(tokens.every((token) => token > lock.token)).toBe(true);
  await other.release();
  expect(await inspect(path, false)).toEqual([]);
});
