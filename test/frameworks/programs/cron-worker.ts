/**
 * A process with a schedule of ticks once a second: writes each tick that it runs into a file, and says which ticks
 * it has come with. The arguments: those of cron-clock.ts; "dies" at its first run.
 */

import "./cron-clock.js";
import { appendFileSync } from "node:fs";
import { CronJob } from "cron";
import { Cron } from "croner";
import { connect } from "holdfast";
import type { TickRun } from "holdfast/cron";
import { createRunCoordinator, wrapJob } from "holdfast/cron";
import { schedule } from "node-cron";
import { scheduleJob } from "node-schedule";

const INTERVAL_MS = 1_000;
const EVERY_SECOND = "* * * * * *";
const BERLIN = "Europe/Berlin";

const [, , scheduler, file = "", , , , end] = process.argv;
const locks = await connect();

function run({ tick }: Pick<TickRun, "tick">): void {
  appendFileSync(file, `${tick.toISOString()}\n`);
  if (end === "dies") process.kill(process.pid, "SIGKILL");
  came(tick);
}

function came(tick: Date): void {
  console.log(`came ${tick.toISOString()}`);
}

const call = wrapJob(locks, "report", run, { onSkipped: ({ tick }) => came(tick) });

const START: Readonly<Record<string, () => unknown>> = {
  croner: () => new Cron(EVERY_SECOND, { timezone: BERLIN }, call),
  cron: () => new CronJob(EVERY_SECOND, call, null, true, BERLIN),
  "node-schedule": () => scheduleJob({ rule: EVERY_SECOND, tz: BERLIN }, call),
  "node-cron": () => schedule(EVERY_SECOND, call, { timezone: BERLIN }),
  "node-cron with a coordinator": () => {
    const options = { name: "report", distributed: true, runCoordinator: createRunCoordinator(locks) };
    const task = schedule(EVERY_SECOND, ({ date }) => run({ tick: date }), options);
    task.on("execution:skipped", ({ date }) => came(date));
  },
  interval: function next(): void {
    const tick = Math.round(Date.now() / INTERVAL_MS + 1) * INTERVAL_MS;
    setTimeout(() => {
      next();
      // a timer may fire early
      void call(new Date());
    }, tick - Date.now());
  },
};
START[scheduler as string]?.();
console.log("ready");
