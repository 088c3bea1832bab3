/** Handles of the user: their settings, their transactions, several drivers on one. */

import { chmodSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";
import Database from "libsql";
import { expect, test } from "vitest";
import { sqlite } from "../../../src/drivers/sql/sqlite/driver.ts";
import { createLocks } from "../../../src/index.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { cleanUpAfterEach, makeClaim, onCleanup } from "../../support/server-fixture.ts";
import { useSqliteFiles } from "../../support/stores/sqlite.ts";

const newFile = useSqliteFiles();
cleanUpAfterEach();

/** For so long the event loop may stand still, in milliseconds: nearly always, and on a machine that is busy otherwise. */
const MAX_BLOCK_MS = 20;
const MAX_BLOCK_BUSY_MS = 150;

function openHandle(path = newFile()): InstanceType<typeof Database> {
  const database = new Database(path);
  chmodSync(path, 0o600);
  database.exec("pragma journal_mode = wal");
  onCleanup(() => void database.close());
  return database;
}

async function openDriver(source: Parameters<typeof sqlite>[0], options: Parameters<typeof sqlite>[1] = {}) {
  const driver = sqlite(source, { silenceWarnings: ["mode"], ...options });
  await driver.open(NO_EVENTS);
  onCleanup(() => driver.close());
  return driver;
}

/** Runs `work`, which must not block the event loop. */
async function expectUnblocked(work: () => Promise<unknown>): Promise<void> {
  const histogram = monitorEventLoopDelay({ resolution: 1 });
  histogram.enable();
  await work();
  histogram.disable();
  expect(histogram.percentile(95) / 1e6).toBeLessThan(MAX_BLOCK_MS);
  expect(histogram.max / 1e6).toBeLessThan(MAX_BLOCK_BUSY_MS);
}

test("two clients on one handle exclude each other, and the waiter learns of the release", async () => {
  const handle = openHandle();
  const [first, second] = [sqlite(handle), sqlite(handle)].map((driver) => createLocks(driver));
  const lock = await first!.acquire("k");
  expect(await second!.tryAcquire("k")).toBeNull();
  const waiting = second!.acquire("k", { wait: 5_000 });
  await lock.release();
  const next = await waiting;
  expect(next.token).toBeGreaterThan(lock.token);
  await next.release();
  await Promise.all([first!.close(), second!.close()]);
  // still open: it is the user's
  expect(handle.prepare("select 1 as one").all()).toEqual([{ one: 1 }]);
});

test("a handle's settings stay as they are", async () => {
  const path = newFile();
  const handle = new Database(path);
  onCleanup(() => void handle.close());
  handle.exec("pragma busy_timeout = 1234; pragma synchronous = normal");
  const warnings: string[] = [];
  const driver = await openDriver(handle, { warn: (warning) => warnings.push(warning) });
  const claim = makeClaim("k");
  await driver.claim(claim);
  await driver.renew([claim]);
  await driver.release([{ claim, hasUnansweredClaim: false }]);
  expect(handle.prepare("pragma busy_timeout").all()).toEqual([{ timeout: 1234 }]);
  expect(handle.prepare("pragma synchronous").all()).toEqual([{ synchronous: 1 }]);
  expect(handle.prepare("pragma journal_mode").all()).toEqual([{ journal_mode: "delete" }]);
  expect(warnings).toEqual([
    expect.stringContaining("journal_mode is delete"),
    expect.stringContaining("synchronous is NORMAL"),
  ]);
});

test("without WAL a reader delays a commit, and the call succeeds when it has ended", async () => {
  const path = newFile();
  const handle = new Database(path);
  onCleanup(() => void handle.close());
  const driver = await openDriver(handle, { silenceWarnings: ["journal"] });
  const reader = new Database(path);
  onCleanup(() => void reader.close());
  reader.exec("begin; select * from holdfast_layout");
  const rows = reader.prepare("select * from holdfast_layout").all();
  expect(rows).toHaveLength(1);
  const claiming = driver.claim(makeClaim("k"));
  const state = await Promise.race([claiming, new Promise((resolve) => setTimeout(resolve, 50, "still busy"))]);
  expect(state).toBe("still busy");
  reader.exec("commit");
  expect((await claiming).state).toBe("held");
});

for (const [name, makeSource] of [
  ["a path", (path: string) => path],
  ["a handle that waits 5 s inside SQLite", openWaitingHandle],
] as const) {
  test(`${name}: while another connection writes, calls reject within their timeout and block nothing`, async () => {
    const path = newFile();
    const driver = await openDriver(makeSource(path), { commandTimeoutMs: 300 });
    const claim = makeClaim("k");
    expect((await driver.claim(claim)).state).toBe("held");
    const writer = openHandle(path);
    writer.exec("begin immediate");
    const startedAt = performance.now();
    await expectUnblocked(() =>
      Promise.all([
        expect(driver.claim(makeClaim("other"))).rejects.toThrow(
          "sqlite: another process has been writing to the database for too long",
        ),
        expect(driver.release([{ claim, hasUnansweredClaim: false }])).rejects.toThrow("(BUSY)"),
      ]),
    );
    expect(performance.now() - startedAt).toBeGreaterThanOrEqual(299);
    expect(performance.now() - startedAt).toBeLessThan(1_000);
    // a renewal that needs no write is answered all the time
    expect((await driver.renew([claim]))[0]?.state).toBe("held");
    writer.exec("commit");
    expect(await driver.release([{ claim, hasUnansweredClaim: false }])).toEqual([true]);
  });
}

function openWaitingHandle(path: string): InstanceType<typeof Database> {
  const handle = openHandle(path);
  handle.exec("pragma busy_timeout = 5000");
  return handle;
}

test("a call waits while its handle is inside a transaction of the user, and changes nothing in it", async () => {
  const handle = openHandle();
  const driver = await openDriver(handle, { commandTimeoutMs: 1_000 });
  handle.exec("create table mine (n int)");
  handle.exec("begin");
  handle.exec("insert into mine values (1)");
  const claiming = driver.claim(makeClaim("k"));
  await new Promise((resolve) => setTimeout(resolve, 50));
  handle.exec("rollback");
  expect((await claiming).state).toBe("held");
  expect(handle.prepare("select * from mine").all()).toEqual([]);
});

test("a transaction of the user that lasts longer than a call is named in its error", async () => {
  const handle = openHandle();
  const driver = await openDriver(handle, { commandTimeoutMs: 100 });
  const claim = makeClaim("held");
  await driver.claim(claim);
  handle.exec("begin");
  await expect(driver.claim(makeClaim("k"))).rejects.toThrow(
    "sqlite: the handle is inside a transaction of its owner: end it, or pass a path or a handle of its own",
  );
  // not even a read: the transaction may see an old state
  await expect(driver.renew([claim])).rejects.toThrow("inside a transaction");
  handle.exec("commit");
  expect((await driver.renew([claim]))[0]?.state).toBe("held");
});

test("rechecks of an unchanged database read no table", async () => {
  const path = newFile();
  const handle = openHandle(path);
  const texts = recordQueries(handle);
  const driver = await openDriver(handle);
  const [holder, waiter] = [makeClaim("k"), makeClaim("k")];
  await driver.claim(holder);
  expect((await driver.claim(waiter)).state).toBe("waiting");
  const recheck = async (): Promise<{ readonly state: string; readonly tables: readonly string[] }> => {
    texts.length = 0;
    const [answer] = await driver.renew([waiter]);
    return { state: answer!.state, tables: texts.filter((text) => text.includes("holdfast_2_")) };
  };
  expect(await recheck()).toEqual({ state: "waiting", tables: [] });
  await writeElsewhere(path);
  expect((await recheck()).tables).not.toEqual([]);
  expect(await recheck()).toEqual({ state: "waiting", tables: [] });
  // a change of its own, which data_version does not show
  await driver.claim(makeClaim("other"));
  expect((await recheck()).tables).not.toEqual([]);
  await driver.release([{ claim: holder, hasUnansweredClaim: false }]);
  expect((await recheck()).state).toBe("held");
});

/** The texts of the queries that the handle runs from now on. */
function recordQueries(handle: InstanceType<typeof Database>): string[] {
  const texts: string[] = [];
  const prepare = handle.prepare.bind(handle) as (text: string) => { all(...values: unknown[]): unknown[] };
  const prepareRecorded: typeof prepare = (text) => {
    const statement = prepare(text);
    const all = statement.all.bind(statement);
    statement.all = (...values) => {
      texts.push(text);
      return all(...values);
    };
    return statement;
  };
  Object.assign(handle, { prepare: prepareRecorded });
  return texts;
}

async function writeElsewhere(path: string): Promise<void> {
  const driver: Driver = await openDriver(path);
  await driver.claim(makeClaim("elsewhere"));
}

test("a recheck from memory ends with the lease ahead: the death of a holder is no write", async () => {
  const driver = await openDriver(newFile());
  const [holder, waiter] = [makeClaim("k", { ttlMs: 300 }), makeClaim("k", { ttlMs: 60_000 })];
  await driver.claim(holder);
  expect((await driver.claim(waiter)).state).toBe("waiting");
  const startedAt = performance.now();
  let answer = await driver.renew([waiter]);
  while (answer[0]?.state === "waiting" && performance.now() - startedAt < 2_000) answer = await driver.renew([waiter]);
  expect(answer[0]?.state).toBe("held");
  expect(performance.now() - startedAt).toBeGreaterThan(250);
});

test("a caller that takes a free lock again and again leaves the event loop to others", async () => {
  const driver = await openDriver(newFile());
  let turns = 0;
  const timer = setInterval(() => turns++, 1);
  const startedAt = performance.now();
  while (turns < 3 && performance.now() - startedAt < 2_000) {
    const claim = makeClaim("k");
    await driver.claim(claim);
    await driver.release([{ claim, hasUnansweredClaim: false }]);
  }
  clearInterval(timer);
  expect(turns).toBe(3);
});

test("a call while tables are missing says so, and is no reason to give up; the next client creates them", async () => {
  const handle = openHandle();
  const driver = await openDriver(handle);
  const names = handle.prepare("select name from sqlite_master where type = 'table' and name like 'holdfast%'").all();
  for (const { name } of names as { name: string }[]) handle.exec(`drop table ${name}`);
  const error = await driver.claim(makeClaim("key")).catch((failure: Error & { code?: string }) => failure);
  expect(error).not.toMatchObject({ code: "LOCK_STORE_REFUSED" });
  expect(String(error)).toMatch(
    /sqlite: Holdfast's tables are missing: let open\(\) create them .*sqliteMigration\(\) \(no such table/,
  );
  const next = await openDriver(handle);
  expect(await next.claim(makeClaim("key"))).toMatchObject({ state: "held" });
  expect(await driver.claim(makeClaim("another key"))).toMatchObject({ state: "held" });
});
