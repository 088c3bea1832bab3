/** A disk that is full, and one that is read-only: nothing is granted twice, and the error says what is wrong. */

import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { openFencedRegister } from "../../support/processes/fenced-register.ts";
import { mountNamespaceUnavailableReason } from "../../support/processes/mount-namespace.ts";
import type { ProcessHarness } from "../../support/processes/process-harness.ts";
import { test } from "../../support/processes/process-harness.ts";
import type { SmallDisk } from "../../support/processes/small-disk.ts";
import { mountSmallDisk } from "../../support/processes/small-disk.ts";
import type { Worker } from "../../support/processes/worker.ts";
import { startWorker } from "../../support/processes/worker.ts";
import { SqliteInspector } from "../../support/stores/sqlite.ts";

const skip = mountNamespaceUnavailableReason === null ? "" : `: ${mountNamespaceUnavailableReason}, skipped`;
/** SQLite begins its write-ahead log again at 4 MB: on a smaller disk that alone would fill it. */
const DISK_MIB = 16;

test.skipIf(skip !== "")(
  `a disk that fills up under load: calls say so, no key is held twice, and all go on when there is room${skip}`,
  async ({ harness }) => {
    const disk = await mountSmallDisk(harness, "disk", DISK_MIB);
    const register = await openFencedRegister(harness);
    const workers = await Promise.all([startOn(harness, disk, register.path), startOn(harness, disk, register.path)]);
    const [one, other] = workers as [Worker, Worker];
    one.acquire("kept", "kept", { ttl: "60s" });
    await one.waitForReport("kept", "held");
    for (const worker of workers) {
      for (const key of ["a", "b"]) worker.send({ do: "load", of: key, keys: [key], ttl: "30s", holdMs: 2 });
    }
    const proceed = async (): Promise<void> => {
      const enough = register.log.length + 40;
      await until(() => register.log.length >= enough, { within: 15_000, what: "turns" });
    };
    for (let round = 0; round < 3; round++) {
      await proceed();
      disk.fill();
      other.acquire(`refused ${round}`, "refused", { wait: "1s" });
      const { why = "" } = await other.waitForReport(`refused ${round}`, "failed");
      expect(why).toMatch(/the disk is full: nothing is granted.*\(FULL\)/);
      disk.clear();
    }
    await proceed();
    for (const worker of workers) for (const key of ["a", "b"]) worker.send({ do: "finish", of: key });
    for (const worker of workers) for (const key of ["a", "b"]) await worker.waitForReport(key, "done");
    expect(register.faults()).toEqual([]);
    one.send({ do: "release", of: "kept" });
    expect((await one.waitForReport("kept", "released")).kept).toBe(true);
    const inspector = new SqliteInspector(copyDatabase(harness, disk));
    expect(await inspector.findViolations()).toEqual([]);
    inspector.close();
  },
);

test.skipIf(skip !== "")(`a file on a read-only disk is refused${skip}`, async ({ harness }) => {
  const disk = await mountSmallDisk(harness, "disk", DISK_MIB);
  const writer = await startOn(harness, disk);
  writer.acquire("k", "k");
  await writer.waitForReport("k", "held");
  writer.process.stdin?.end();
  await writer.ended;
  const [program = "", ...args] = disk.commandPrefix;
  const { status, stderr } = spawnSync(program, [...args, "mount", "-o", "remount,ro", disk.path]);
  expect([status, String(stderr)]).toEqual([0, ""]);
  const reader = await startOn(harness, disk);
  reader.acquire("k", "other");
  expect((await reader.waitForReport("k", "failed")).why).toMatch(
    /^LOCK_STORE_REFUSED .*read-only, but locks are written: make them writable \(READONLY\)/,
  );
});

function startOn(harness: ProcessHarness, disk: SmallDisk, registerPath = ""): Promise<Worker> {
  return startWorker(harness, `sqlite:${join(disk.path, "locks.db")}`, registerPath, {}, disk.commandPrefix);
}

/** Only processes that see the disk could open its database. */
function copyDatabase(harness: ProcessHarness, { pathFromOutside, path }: SmallDisk): string {
  for (const suffix of ["", "-wal"]) {
    const source = pathFromOutside(join(path, `locks.db${suffix}`));
    if (existsSync(source)) copyFileSync(source, harness.path(`copy.db${suffix}`));
  }
  return harness.path("copy.db");
}
