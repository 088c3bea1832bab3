/** Processes on one file that are killed or stopped: the guarantees of Holdfast's own server hold here, too. */

import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import Database from "libsql";
import { expect } from "vitest";
import { sqlite } from "../../../src/drivers/sql/sqlite/driver.ts";
import { createFenceTable, fence } from "../../../src/fencing/index.ts";
import type { Lock } from "../../../src/index.ts";
import { connect } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import type { Effect } from "../../support/processes/fenced-register.ts";
import { openFencedRegister } from "../../support/processes/fenced-register.ts";
import { startFencedProcess } from "../../support/processes/fenced-transaction.ts";
import type { ProcessHarness } from "../../support/processes/process-harness.ts";
import { test } from "../../support/processes/process-harness.ts";
import { expectStaleHolderRejected } from "../../support/processes/stale-holder.ts";
import { msBetween, startWorker } from "../../support/processes/worker.ts";
import { makeClaim } from "../../support/server-fixture.ts";
import { SqliteInspector } from "../../support/stores/sqlite.ts";

const LEASE_MS = 2_000;
/** "At once", on a machine that is busy with other things. */
const IMMEDIATE_MS = 3_000;

const urlOf = (harness: ProcessHarness): string => `sqlite:${harness.path("locks.db")}`;

test.concurrent("after a holder is killed the next grant comes when its lease has ended, not before", async ({
  harness,
}) => {
  const url = urlOf(harness);
  const [holder, next] = [await startWorker(harness, url), await startWorker(harness, url)];
  holder.acquire("it", "k", { ttl: "2s" });
  const held = await holder.waitForReport("it", "held");
  next.acquire("next", "k");
  await next.waitForReport("next", "asked");
  const killed = { at: String(process.hrtime.bigint()) };
  holder.kill();
  const asked = await holder.waitForReport("it", "asked");
  const granted = await next.waitForReport("next", "held");
  // the clock of the leases counts milliseconds
  expect(msBetween(asked, granted)).toBeGreaterThanOrEqual(LEASE_MS - 1);
  expect(msBetween(killed, granted)).toBeLessThan(LEASE_MS + IMMEDIATE_MS);
  expect(BigInt(granted.token!)).toBeGreaterThan(BigInt(held.token!));
  console.log(`figure: holder killed on SQLite (lease 2 s), next after ${msBetween(killed, granted).toFixed(0)} ms`);
});

test.concurrent("a holder stopped past its lease is notified before it can write, and its token is refused", async ({
  harness,
}) => {
  await expectStaleHolderRejected(harness, urlOf(harness));
});

test.concurrent.for([
  ["a write-ahead log", "sqlite"],
  ["a rollback journal", "rollback"],
] as const)(
  "with %s, processes killed one after another at work: no two holders overlap, tokens rise, the others go on",
  async ([, scheme], { harness }) => {
    const url = `${scheme}:${harness.path("locks.db")}`;
    const register = await openFencedRegister(harness);
    const start = async () => {
      const worker = await startWorker(harness, url, register.path);
      worker.send({ do: "load", of: "it", keys: ["a", "b"], ttl: "1s", holdMs: 1 });
      return worker;
    };
    const workers = [await start(), await start(), await start()];
    const killedAt = new Map<number, bigint>();
    const inspector = new SqliteInspector(harness.path("locks.db"));
    harness.onTeardown(() => inspector.close());
    for (let kill = 0; kill < 8; kill++) {
      const enough = register.log.length + 20;
      await until(() => register.log.length >= enough, {
        within: 10_000,
        what: "work, also of keys whose holder was killed",
      });
      const victim = workers.shift();
      victim?.kill();
      killedAt.set(victim!.pid, process.hrtime.bigint());
      expect(await inspector.findViolations()).toEqual([]);
      workers.push(await start());
    }
    const proceededSince = register.log.length;
    const pids = new Set<number>();
    await until(
      () => {
        for (const { pid } of register.log.slice(proceededSince)) pids.add(pid);
        return workers.every(({ pid }) => pids.has(pid));
      },
      { within: 15_000, what: "a turn of each process" },
    );
    for (const worker of workers) worker.send({ do: "finish", of: "it" });
    for (const worker of workers) await worker.waitForReport("it", "done", 15_000);
    expect(findOverlaps(register.log, killedAt)).toEqual([]);
    expect(register.faults().filter((fault) => fault.includes("not above"))).toEqual([]);
  },
);

test.concurrent("a process that is stopped inside a transaction: calls reject within their timeout, reads go on", async ({
  harness,
}) => {
  const path = harness.path("locks.db");
  const driver = sqlite(path, { commandTimeoutMs: 300 });
  await driver.open(NO_EVENTS);
  harness.onTeardown(() => void driver.close());
  const claim = makeClaim("k");
  expect((await driver.claim(claim)).state).toBe("held");
  const writer = startWriter(harness, path);
  await until(() => writer.out().includes("writing"), { within: 10_000, what: "the transaction" });
  writer.process.kill("SIGSTOP");
  const startedAt = performance.now();
  await expect(driver.claim(makeClaim("other"))).rejects.toThrow("is it stopped inside a transaction?");
  expect(performance.now() - startedAt).toBeLessThan(1_500);
  expect((await driver.renew([claim]))[0]?.state).toBe("held");
  expect((await driver.list({ prefix: "" }, { max: 10 })).items).toHaveLength(1);
  // its death ends the transaction
  writer.kill();
  await writer.ended;
  expect(await driver.release([{ claim, hasUnansweredClaim: false }])).toEqual([true]);
});

test.concurrent("a holder that is stopped in its fenced transaction blocks the next one's, and commits before it or is killed", async ({
  harness,
}) => {
  const [lockUrl, path] = [urlOf(harness), harness.path("data.db")];
  const data = new Database(path);
  harness.onTeardown(() => data.close());
  data.exec("pragma journal_mode = wal; create table data (seq integer primary key, who text)");
  await createFenceTable(data);
  const transactNext = async (lock: Lock): Promise<void> => {
    data.exec("begin immediate");
    await fence(data, lock);
    data.exec("insert into data (who) values ('next'); commit");
  };
  const stopped = await startFencedProcess(harness, lockUrl, `sqlite:${path}`);
  stopped.stop();
  await using locks = await connect(lockUrl);
  const lock = await locks.acquire("k", { wait: "20s" });
  // SQLite has no time-out for a transaction: the next holder has the lock, and its transaction has to wait
  await expect(transactNext(lock)).rejects.toMatchObject({ code: "SQLITE_BUSY" });
  expect(await stopped.resumeAndCommit()).toBe("committed");
  await stopped.ended;
  await transactNext(lock);
  await lock.release();
  const killed = await startFencedProcess(harness, lockUrl, `sqlite:${path}`);
  killed.stop();
  const last = await locks.acquire("k", { wait: "20s" });
  await expect(transactNext(last)).rejects.toMatchObject({ code: "SQLITE_BUSY" });
  killed.kill();
  await killed.ended;
  await transactNext(last);
  expect(data.prepare("select who from data order by seq").all()).toMatchObject([
    { who: "stopped" },
    { who: "next" },
    { who: "next" },
  ]);
});

/** Entries while another process was inside; one that was killed there has left no line. */
function findOverlaps(log: readonly Effect[], killedAt: ReadonlyMap<number, bigint>): string[] {
  const inside = new Map<string, number>();
  return log.flatMap(({ what, key, pid, at }) => {
    const other = inside.get(key);
    if (what === "leave" && other === pid) inside.delete(key);
    if (what !== "enter") return [];
    inside.set(key, pid);
    const isAlone = other === undefined || other === pid || (killedAt.get(other) ?? at) < at;
    return isAlone ? [] : [`${pid} entered ${key} while ${other} was inside`];
  });
}

/** A process with an open write transaction. */
function startWriter(harness: ProcessHarness, path: string): ReturnType<ProcessHarness["startProgram"]> {
  const libsql = pathToFileURL(createRequire(import.meta.url).resolve("libsql")).href;
  const program = harness.path("writer.mjs");
  writeFileSync(
    program,
    `import Database from ${JSON.stringify(libsql)};
     const database = new Database(process.argv[2]);
     database.exec("begin immediate; update holdfast_2_buckets set last_token = last_token + 1");
     console.log("writing");
     setInterval(() => undefined, 1000);`,
  );
  return harness.startProgram([process.execPath, program, path], {});
}
