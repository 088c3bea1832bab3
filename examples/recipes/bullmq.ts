// BullMQ: two jobs of one customer never run at the same time, in whatever workers they are.

import type { Job } from "bullmq";
import { DelayedError, Worker } from "bullmq";
import { connect, currentLock } from "holdfast";

const { hostname: host, port } = new URL(process.env.REDIS_URL ?? "redis://127.0.0.1:6379");
const locks = await connect();
const RETRY_MS = 250;

const charge = locks.wrap("customer:#{customer}", { wait: 0, onBusy: () => "busy" }, async (customer: string) => {
  console.log(`charging ${customer}`);
  await new Promise((resolve) => setTimeout(resolve, 100));
  currentLock().throwIfLost();
  console.log(`charged ${customer}`);
  return "charged";
});

const worker = new Worker(
  "charges",
  async (job: Job<{ readonly customer: string }>, token) => {
    const result = await charge(job.data.customer);
    if (result !== "busy") return result;
    // back into the queue, instead of a worker that waits
    await job.moveToDelayed(Date.now() + RETRY_MS, token);
    throw new DelayedError();
  },
  { connection: { host, port: Number(port) }, concurrency: 5 },
);
worker.on("failed", (_job, error) => console.error(error));
await worker.waitUntilReady();
console.log("ready");

process.once("SIGTERM", async () => {
  await worker.close(); // waits for the running jobs
  await locks.close();
});
