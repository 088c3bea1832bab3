// A job that runs once per tick, in however many processes this program runs.

import { Cron } from "croner";
import { connect } from "holdfast";
import { wrapJob } from "holdfast/cron";

const locks = await connect();

const sendReport = wrapJob(
  locks,
  "report",
  async ({ tick }) => {
    console.log(`report for ${tick.toISOString()}`);
  },
  { overlap: false, onSkipped: ({ tick, reason }) => console.log(`skipped ${tick.toISOString()}: ${reason}`) },
);

let running: Promise<void> | undefined;
const job = new Cron("* * * * * *", { timezone: "Etc/UTC", catch: (error) => console.error(error) }, (tick) => {
  running = sendReport(tick);
  return running;
});

process.once("SIGTERM", async () => {
  job.stop();
  await running?.catch(() => undefined); // close() would release its lock while it runs
  await locks.close();
});
