// A task of node-cron that runs once per tick, in however many processes this program runs.

import { connect } from "holdfast";
import { createRunCoordinator } from "holdfast/cron";
import { schedule } from "node-cron";

const locks = await connect();

let running: Promise<void> | undefined;

async function sendReport(tick: Date): Promise<void> {
  console.log(`report for ${tick.toISOString()}`);
}

function onTick({ date }: { readonly date: Date }): Promise<void> {
  running = sendReport(date);
  return running;
}

const task = schedule("* * * * * *", onTick, {
  name: "report", // the same in every process
  timezone: "Etc/UTC",
  distributed: true,
  runCoordinator: createRunCoordinator(locks, { overlap: false }),
});
task.on("execution:skipped", ({ date, reason }) => console.log(`skipped ${date.toISOString()}: ${reason}`));

process.once("SIGTERM", async () => {
  await task.stop();
  await running?.catch(() => undefined); // close() would release its lock while it runs
  await locks.close();
});
