// The wall clock of the server's host is stepped an hour forward and back under load: leases go by another clock, and
// tokens, which go by this one, must rise all the same.

import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import type { Clock } from "../../src/clock.ts";
import { systemClock } from "../../src/clock.ts";
import { serve } from "../../src/server/serve.ts";
import { until } from "../support/wait-for.ts";
import { allProceeded, loaded, longestStop, WITHIN_MS, WORKERS } from "./load.ts";
import { openRegister } from "./register.ts";
import type { Scene } from "./scene.ts";
import { LONG, test } from "./scene.ts";
import { mortal } from "./served-child.ts";

const HOUR_S = 3_600;
const STEPS = LONG ? [1, 0, -1, 0, 1, -1, 0] : [1, -1];
const BETWEEN_MS = LONG ? 5_000 : 700;

/** Steps the clock by whole hours from the true time, and sees that the load goes on and that the step was felt. */
async function stepped(here: Scene, url: string, step: (seconds: number) => void): Promise<void> {
  const register = await openRegister(here);
  const workers = await loaded(here, url, register);
  await until(() => register.log.length > 2 * WORKERS, { within: WITHIN_MS, what: "turns before the first step" });
  for (const hours of STEPS) {
    step(hours * HOUR_S);
    const before = register.log.length;
    await delay(BETWEEN_MS);
    await until(() => register.log.length > before + 2, { within: WITHIN_MS, what: `turns at ${hours} h` });
  }
  // a token tells the clock that made it, or the highest one before: it went forward with the first step
  const ahead = Number((register.log.at(-1)?.token ?? 0n) / 1_000n) - Date.now();
  expect(ahead).toBeGreaterThan((HOUR_S - 60) * 1_000);
  await allProceeded(workers, register, process.hrtime.bigint());
  console.log(
    `figure: server's clock stepped ${STEPS.length} times by hours: ${register.log.length / 2} turns, longest stop ${longestStop(register).toFixed(0)} ms`,
  );
}

const NAME = `the server's wall clock stepped an hour forward and back under load of ${WORKERS} processes: no double grant, tokens rise, nobody loses a lock, everybody proceeds`;
const options = { timeout: STEPS.length * BETWEEN_MS + 4 * WITHIN_MS };

test(`${NAME} (the server's clock is the test's)`, options, async ({ here }) => {
  let aheadMs = 0;
  const clock: Clock = {
    now: () => systemClock.now(),
    uptime: () => systemClock.uptime(),
    timer: (run) => systemClock.timer(run),
    wall: () => systemClock.wall() + aheadMs,
  };
  const server = await serve({ listen: "tcp://127.0.0.1:0", state: here.path("state"), clock, log: () => undefined });
  try {
    const url = (server.addresses[0] as string).replace("tcp:", "holdfast:");
    await stepped(here, url, (seconds) => {
      aheadMs = seconds * 1_000;
    });
  } finally {
    await server.close();
  }
});

const LIBRARY = "libfaketime.so.1";
const FOLDERS = ["/usr/lib/faketime", "/usr/lib64/faketime", ...multiarch()];
const faketime = FOLDERS.map((folder) => join(folder, LIBRARY)).find((path) => existsSync(path)) ?? null;

test.skipIf(faketime === null)(
  `${NAME} (libfaketime${faketime === null ? " is not installed: skipped" : ""})`,
  options,
  async ({ here }) => {
    const file = here.path("clock");
    const step = (seconds: number): void => writeFileSync(file, `${seconds < 0 ? "" : "+"}${seconds}s\n`);
    step(0);
    const server = await mortal(here, {
      env: {
        LD_PRELOAD: faketime ?? "",
        FAKETIME_TIMESTAMP_FILE: file,
        FAKETIME_NO_CACHE: "1",
        FAKETIME_DONT_FAKE_MONOTONIC: "1",
      },
    });
    await stepped(here, server.url, step);
  },
);

function multiarch(): string[] {
  const root = "/usr/lib";
  if (!existsSync(root)) return [];
  const names = readdirSync(root).filter((name) => name.endsWith("-linux-gnu"));
  return names.map((name) => join(root, name, "faketime"));
}
