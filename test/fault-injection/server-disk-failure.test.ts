// A lock server on TCP under load, whose state cannot be written: calls that need a write are refused with the reason, others
// succeed, and when there is room again all succeed.

import { spawnSync } from "node:child_process";
import { mkdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import { until } from "../../src/testing/until.ts";
import { randomId } from "../../src/util/ids.ts";
import { openFencedRegister } from "../support/processes/fenced-register.ts";
import {
  expectAllProceeded,
  longestGapMs,
  PROGRESS_TIMEOUT_MS,
  startWorkload,
} from "../support/processes/lock-workload.ts";
import { inMountNamespace, MOUNT_NAMESPACE_COMMAND } from "../support/processes/mount-namespace.ts";
import type { ProcessHarness } from "../support/processes/process-harness.ts";
import { IS_LONG_RUN, test } from "../support/processes/process-harness.ts";
import type { ServerProcess } from "../support/processes/server-process.ts";
import { startServerProcess } from "../support/processes/server-process.ts";
import { RawClient } from "../support/raw-client.ts";

const DAY_MS = 86_400_000;
const MINUTE_MS = 60_000;
const BUSY_MS = IS_LONG_RUN ? 10_000 : 800;
/** The token ceiling is half a minute ahead: after that not even a claim with the default lease is granted. */
const BOUND_MS = 35_000;

type DiskFault = { readonly server: ServerProcess; break(): void; repair(): void };

/** The state is on a file system of 1 MiB that only the server sees, and that is filled to the last byte. */
async function fullDisk(harness: ProcessHarness): Promise<DiskFault> {
  const disk = harness.path("disk");
  mkdirSync(disk, { mode: 0o700 });
  const commandPrefix = inMountNamespace(`mount -t tmpfs -o size=1m,mode=0700 none "${disk}"`, []);
  const server = await startServerProcess(harness, { commandPrefix, state: join(disk, "state") });
  const fillerFile = join(`/proc/${server.pid()}/root`, disk, "filler");
  return {
    server,
    // cat ends when not a byte more fits
    break: () => void spawnSync("sh", ["-c", `cat /dev/zero >"${fillerFile}"`], { stdio: "ignore" }),
    repair: () => rmSync(fillerFile),
  };
}

/** Neither the state file nor the journal can be rewritten, not even by root: their directory is missing. */
async function unwritableDirectory(harness: ProcessHarness): Promise<DiskFault> {
  const folder = harness.path("state");
  const server = await startServerProcess(harness, { state: folder });
  return {
    server,
    break() {
      renameSync(folder, `${folder}-away`);
    },
    repair() {
      renameSync(`${folder}-away`, folder);
    },
  };
}

const faults = [
  {
    name: "disk full",
    open: fullDisk,
    why: MOUNT_NAMESPACE_COMMAND === null ? ": nothing may be mounted harness, skipped" : "",
  },
  { name: "state folder gone", open: unwritableDirectory, why: "" },
];

for (const { name, open, why: reason } of faults) {
  test.skipIf(reason !== "")(
    `${name}, under load of 8 processes: calls that need a write are refused with DISK, others succeed, and all succeed when there is room${reason}`,
    { timeout: (IS_LONG_RUN ? BOUND_MS : 0) + 4 * PROGRESS_TIMEOUT_MS },
    async ({ harness }) => {
      const { server, ...fault } = await open(harness);
      const register = await openFencedRegister(harness);
      const workers = await startWorkload(harness, server.url, register);
      const client = await RawClient.open(server.rawAddress);
      const keptId = randomId();
      expect((await client.claim(keptId, "kept"))[0]).toBe("held");
      await until(() => register.log.length > 20, { within: PROGRESS_TIMEOUT_MS, what: "turns before the fault" });

      fault.break();
      await fillLastPage(client);
      await expect(client.claim(randomId(), "day", DAY_MS)).rejects.toThrow(/DISK/);
      await expect(client.claim(randomId(), "minute", MINUTE_MS)).rejects.toThrow(/DISK/);
      await expect(client.call("detach", [keptId])).rejects.toThrow(/DISK/);
      const before = register.log.length;
      await delay(BUSY_MS);
      await until(() => register.log.length > before + 10, {
        within: PROGRESS_TIMEOUT_MS,
        what: "turns amid the fault",
      });
      if (IS_LONG_RUN) await expectUnwrittenClaimsRefused(client, keptId);
      fault.repair();

      await until(
        async () => {
          const answer = await client.claim(randomId(), "day", DAY_MS, { wait: false }).catch(() => null);
          return answer?.[0] === "held";
        },
        { within: 10_000, what: "a claim of a day" },
      );
      expect(await client.release(keptId)).toBe(true);
      await expectAllProceeded(workers, register, process.hrtime.bigint());
      client.end();
      console.log(
        `figure: ${name}: ${register.log.length / 2} turns, longest stop ${longestGapMs(register).toFixed(0)} ms`,
      );
    },
  );
}

/** A full file system may still have room in the journal's last page of 4 KiB. */
async function fillLastPage(client: RawClient): Promise<void> {
  for (let n = 0; n < 100; n++) {
    const refusal = await client.claim(randomId(), `${n}`.padEnd(500, "x"), DAY_MS).then(
      () => null,
      (error: unknown) => error,
    );
    if (refusal === null) continue;
    expect(String(refusal)).toMatch(/DISK/);
    // less is left than such a line needs; a short one may still fit
    for (let index = 0; index < 100; index++) {
      const isRefused = await client.claim(randomId(), `short${index}`, DAY_MS).then(
        () => false,
        () => true,
      );
      if (isRefused) return;
    }
  }
  throw new Error("the disk is not full");
}

/** Nothing new is granted, and held claims can still be renewed. */
async function expectUnwrittenClaimsRefused(client: RawClient, keptId: string): Promise<void> {
  const end = performance.now() + BOUND_MS;
  while (performance.now() < end) {
    await delay(5_000);
    expect(await client.call("renew", [keptId])).toMatchObject([expect.arrayContaining(["held"])]);
  }
  await expect(client.claim(randomId(), "late", 30_000, { wait: false })).rejects.toThrow(/DISK/);
}
