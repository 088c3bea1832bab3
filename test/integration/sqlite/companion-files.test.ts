/** The -wal or -shm file is deleted while processes use the database: no lock has two holders for longer than a renewal takes. */

import { rmSync } from "node:fs";
import Database from "libsql";
import { describe, expect } from "vitest";
import { sqlite } from "../../../src/drivers/sql/sqlite/driver.ts";
import type { Lock, Locks } from "../../../src/index.ts";
import { connect, createLocks } from "../../../src/index.ts";
import { StoreRefusedError } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import type { ProcessHarness } from "../../support/processes/process-harness.ts";
import { test } from "../../support/processes/process-harness.ts";
import { startWorker } from "../../support/processes/worker.ts";
import type { SqliteLibrary } from "../../support/stores/sqlite-libraries.ts";
import { listOtherLibraries } from "../../support/stores/sqlite-libraries.ts";

const TTL_MS = 1_500;
/** The event loop may be late. */
const SLACK_MS = 500;
const LOST = /-wal or -shm file of .*locks\.db was deleted or replaced .* restart the process/;

/** Without the -wal file alone no other process can open the database: database-files.test.ts has that case. */
const CASES: readonly { readonly suffixes: readonly string[] }[] = [
  { suffixes: ["-shm"] },
  { suffixes: ["-wal", "-shm"] },
];
const LIBSQL: SqliteLibrary = { name: "libsql", open: (path) => new Database(path) };

interface Holder {
  readonly locks: Locks;
  readonly lock: Lock;
  readonly lostAt: () => bigint | null;
}

async function hold(locks: Locks): Promise<Holder> {
  const lock = await locks.acquire("k");
  // renewed, so that the lease is not that of the claim call
  await (await locks.acquire("other")).release();
  let lostAt: bigint | null = null;
  lock.signal.addEventListener("abort", () => {
    lostAt = process.hrtime.bigint();
  });
  return { locks, lock, lostAt: () => lostAt };
}

/** Deletes the files, and lets another process wait for the lock. @returns for how long both held it, in milliseconds */
async function measureOverlap(harness: ProcessHarness, path: string, suffixes: readonly string[], holder: Holder) {
  for (const suffix of suffixes) rmSync(path + suffix);
  const other = await startWorker(harness, `sqlite:${path}`);
  other.acquire("it", "k", { wait: "9s" });
  const { at } = await other.waitForReport("it", "held");
  await until(() => holder.lostAt() !== null, { within: TTL_MS + SLACK_MS, what: "the holder to be told" });
  // this process stays outside: it must not adopt the files of the other one
  await expect(holder.locks.acquire("k")).rejects.toThrow(LOST);
  await expect(holder.locks.tryAcquire("free")).rejects.toThrow(LOST);
  expect(other.reports().some(({ event }) => event === "lost")).toBe(false);
  return Number((holder.lostAt() as bigint) - BigInt(at)) / 1e6;
}

describe.concurrent.for(CASES)("without $suffixes", ({ suffixes }) => {
  test("by url: holders are told at once, and the process does not use the file again", async ({ harness }) => {
    const path = harness.path("locks.db");
    const warnings: string[] = [];
    const driver = sqlite(path, { warn: (warning) => warnings.push(warning) });
    const holder = await hold(createLocks(driver, { ttl: TTL_MS }));
    const overlapMs = await measureOverlap(harness, path, suffixes, holder);
    // without the -wal file the other process knows of no claim; otherwise it waits for the end of the lease
    if (suffixes.includes("-wal")) expect(overlapMs).toBeLessThan(TTL_MS / 2 + SLACK_MS);
    else expect(overlapMs).toBeLessThan(0);
    expect(warnings.filter((warning) => LOST.test(warning))).toHaveLength(1);
    await expect(connect(`sqlite:${path}`)).rejects.toThrow(LOST);
    await holder.locks.close();
    // closing does not write the old state back
    await expect(connect(`sqlite:${path}`)).rejects.toThrow(StoreRefusedError);
    const third = await startWorker(harness, `sqlite:${path}`);
    third.acquire("third", "k");
    await third.waitForReport("third", "asked");
    third.acquire("free", "free");
    await third.waitForReport("free", "held");
    expect(third.reports().some(({ of, event }) => of === "third" && event === "held")).toBe(false);
  });

  test("a process that opens the file after others have made new ones does not join the old", async ({ harness }) => {
    const path = harness.path("locks.db");
    const handle = LIBSQL.open(path);
    handle.exec("pragma journal_mode = wal; create table mine (n)");
    for (const suffix of suffixes) rmSync(path + suffix);
    const other = await startWorker(harness, `sqlite:${path}`);
    other.acquire("it", "k");
    await other.waitForReport("it", "held");
    // only Linux tells that this process has the deleted file open, by a connection that the driver does not know
    if (process.platform === "linux") await expect(connect(`sqlite:${path}`)).rejects.toThrow(StoreRefusedError);
    handle.close();
  });

  describe.for([LIBSQL, ...listOtherLibraries()])("a handle of $name", ({ open }) => {
    test("rejects all calls, and its holder loses the lock with its lease", async ({ harness }) => {
      const path = harness.path("locks.db");
      const handle = open(path);
      handle.exec("pragma journal_mode = wal; pragma synchronous = full");
      const holder = await hold(createLocks(sqlite(handle, { silenceWarnings: ["mode"] }), { ttl: TTL_MS }));
      const overlapMs = await measureOverlap(harness, path, suffixes, holder);
      expect(overlapMs).toBeLessThan(suffixes.includes("-wal") ? TTL_MS + SLACK_MS : 0);
      await holder.locks.close();
      handle.close();
    });
  });
});

test("a handle may leave WAL mode, and come back to it", async ({ harness }) => {
  const handle = LIBSQL.open(harness.path("locks.db"));
  handle.exec("pragma journal_mode = wal");
  const locks = createLocks(sqlite(handle, { silenceWarnings: ["mode", "journal"] }));
  for (const mode of ["wal", "delete", "wal"]) {
    handle.exec(`pragma journal_mode = ${mode}`);
    await (await locks.acquire("k")).release();
  }
  await locks.close();
  handle.close();
});
