/**
 * A process with a schedule of ticks once a second: writes each tick that it runs into a file, and says which ticks
 * it has come with. The arguments: the scheduler; the file; how many milliseconds its clock is ahead; "dies" at its first run.
 */

import { appendFileSync } from "node:fs";
import { Cron } from "croner";
import { connect } from "holdfast";
import { createRunCoordinator, wrapJob } from "holdfast/cron";
import { schedule } from "node-cron";

const INTERVAL_MS = 1_000;
const EVERY_SECOND = "* * * * * *";

const [scheduler, file = "", aheadMs = "0", end] = process.argv.slice(2);
const MachineDate = Date;
globalThis.Date = class extends MachineDate {
  constructor(...args: unknown[]) {
    super(...((args.length === 0 ? [MachineDate.now() + Number(aheadMs)] : args) as [number]));
  }
  static override now(): number {
    return MachineDate.now() + Number(aheadMs);
  }
} as DateConstructor;

const locks = await connect();

function run({ tick }: { readonly tick: Date }): void {
  appendFileSync(file, `${tick.toISOString()}\n`);
  if (end === "dies") process.kill(process.pid, "SIGKILL");
  came(tick);
}

function came(tick: Date): void {
  console.log(`came ${tick.toISOString()}`);
}

const call = wrapJob(locks, "report", run, { onSkipped: ({ tick }) => came(tick) });

if (scheduler === "croner") new Cron(EVERY_SECOND, { timezone: "Asia/Kathmandu" }, call);
else if (scheduler === "node-cron") {
  const options = { name: "report", distributed: true, runCoordinator: createRunCoordinator(locks) };
  const task = schedule(EVERY_SECOND, ({ date }) => run({ tick: date }), options);
  task.on("execution:skipped", ({ date }) => came(date));
} else {
  const next = (): void => {
    const tick = Math.round(Date.now() / INTERVAL_MS + 1) * INTERVAL_MS;
    setTimeout(() => {
      next();
      // a timer may fire early
      void call(new Date());
    }, tick - Date.now());
  };
  next();
}
console.log("ready");
