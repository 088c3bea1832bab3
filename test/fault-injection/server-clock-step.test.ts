// The wall clock of the server's host is stepped an hour forward and back under load: leases use another clock, and
// tokens, which follow this one, must still rise.

import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import { serve } from "../../src/server/server.ts";
import { until } from "../../src/testing/until.ts";
import type { Clock } from "../../src/util/clock.ts";
import { systemClock } from "../../src/util/clock.ts";
import { openFencedRegister } from "../support/processes/fenced-register.ts";
import {
  expectAllProceeded,
  longestGapMs,
  PROGRESS_TIMEOUT_MS,
  startWorkload,
  WORKER_COUNT,
} from "../support/processes/lock-workload.ts";
import type { ProcessHarness } from "../support/processes/process-harness.ts";
import { IS_LONG_RUN, test } from "../support/processes/process-harness.ts";
import { startServerProcess } from "../support/processes/server-process.ts";

const HOUR_S = 3_600;
const STEPS = IS_LONG_RUN ? [1, 0, -1, 0, 1, -1, 0] : [1, -1];
const STEP_INTERVAL_MS = IS_LONG_RUN ? 5_000 : 700;

/** Steps the clock by full hours from the true time, and checks that the load continues and that the step took effect. */
async function expectExclusionOverClockSteps(
  harness: ProcessHarness,
  url: string,
  step: (seconds: number) => void,
): Promise<void> {
  const register = await openFencedRegister(harness);
  const workers = await startWorkload(harness, url, register);
  await until(() => register.log.length > 2 * WORKER_COUNT, {
    within: PROGRESS_TIMEOUT_MS,
    what: "turns before the first step",
  });
  for (const hours of STEPS) {
    step(hours * HOUR_S);
    const before = register.log.length;
    await delay(STEP_INTERVAL_MS);
    await until(() => register.log.length > before + 2, { within: PROGRESS_TIMEOUT_MS, what: `turns at ${hours} h` });
  }
  // a token shows the clock at its issue, or the highest one before: it went forward with the first step
  const aheadMs = Number((register.log.at(-1)?.token ?? 0n) / 1_000n) - Date.now();
  expect(aheadMs).toBeGreaterThan((HOUR_S - 60) * 1_000);
  await expectAllProceeded(workers, register, process.hrtime.bigint());
  console.log(
    `figure: server's clock stepped ${STEPS.length} times by hours: ${register.log.length / 2} turns, longest stop ${longestGapMs(register).toFixed(0)} ms`,
  );
}

const TEST_NAME = `the server's wall clock stepped an hour forward and back under load of ${WORKER_COUNT} processes: no double grant, tokens rise, nobody loses a lock, everybody proceeds`;
const options = { timeout: STEPS.length * STEP_INTERVAL_MS + 4 * PROGRESS_TIMEOUT_MS };

test(`${TEST_NAME} (the server's clock is the test's)`, options, async ({ harness }) => {
  let aheadMs = 0;
  const clock: Clock = {
    now: () => systemClock.now(),
    uptime: () => systemClock.uptime(),
    timer: (run) => systemClock.timer(run),
    wall: () => systemClock.wall() + aheadMs,
  };
  const server = await serve({
    listen: "holdfast://127.0.0.1:0",
    state: harness.path("state"),
    clock,
    log: () => undefined,
  });
  try {
    const url = server.addresses[0] as string;
    await expectExclusionOverClockSteps(harness, url, (seconds) => {
      aheadMs = seconds * 1_000;
    });
  } finally {
    await server.close();
  }
});

const FAKETIME_LIBRARY = "libfaketime.so.1";
const LIBRARY_DIRECTORIES = ["/usr/lib/faketime", "/usr/lib64/faketime", ...multiarchTriplet()];
const faketimePath =
  LIBRARY_DIRECTORIES.map((folder) => join(folder, FAKETIME_LIBRARY)).find((path) => existsSync(path)) ?? null;

test.skipIf(faketimePath === null)(
  `${TEST_NAME} (libfaketime${faketimePath === null ? " is not installed: skipped" : ""})`,
  options,
  async ({ harness }) => {
    const file = harness.path("clock");
    const step = (seconds: number): void => writeFileSync(file, `${seconds < 0 ? "" : "+"}${seconds}s\n`);
    step(0);
    const server = await startServerProcess(harness, {
      env: {
        LD_PRELOAD: faketimePath ?? "",
        FAKETIME_TIMESTAMP_FILE: file,
        FAKETIME_NO_CACHE: "1",
        FAKETIME_DONT_FAKE_MONOTONIC: "1",
      },
    });
    await expectExclusionOverClockSteps(harness, server.url, step);
  },
);

function multiarchTriplet(): string[] {
  const root = "/usr/lib";
  if (!existsSync(root)) return [];
  const names = readdirSync(root).filter((name) => name.endsWith("-linux-gnu"));
  return names.map((name) => join(root, name, "faketime"));
}
