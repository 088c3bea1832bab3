import { expect } from "vitest";
import { until } from "../../src/testing/until.ts";
import { descendants, sendSignal } from "../../src/torture/processes/process-tree.ts";
import { test } from "../support/processes/process-harness.ts";
import { msBetween, startWorker } from "../support/processes/worker.ts";

/** "At once", on a busy machine: the lease that is not waited for has 30 s. */
const IMMEDIATE_MS = 10_000;
const LEASE_MS = 2_000;

const monotonicNow = (): { readonly at: string } => ({ at: String(process.hrtime.bigint()) });

test.concurrent("wrapper and child killed: the next grant follows at once", async ({ harness }) => {
  const run = harness.start(["run", "k", "--", "sh", "-c", "echo works; sleep 60; true"]);
  await until(() => run.out() !== "", { within: 10_000, what: "the command" });
  const next = await startWorker(harness);
  next.acquire("next", "k");
  await next.waitForReport("next", "asked");
  // found by the unique sleep below it
  const child = await until(() => descendants(run.pid).find(({ pid }) => descendants(pid).length === 1), {
    within: 5_000,
    what: "the command at sleep",
  });
  const killTime = monotonicNow();
  run.kill();
  sendSignal(child, "SIGKILL");
  const ms = msBetween(killTime, await next.waitForReport("next", "held"));
  expect(ms).toBeLessThan(IMMEDIATE_MS);
  console.log(`figure: wrapper and child killed, next grant after ${ms.toFixed(0)} ms`);
});

test.concurrent("a library holder killed on the Unix socket: the next grant follows at once", async ({ harness }) => {
  const holder = await startWorker(harness);
  const next = await startWorker(harness);
  holder.acquire("it", "k");
  await holder.waitForReport("it", "held");
  next.acquire("next", "k");
  await next.waitForReport("next", "asked");
  const killTime = monotonicNow();
  holder.kill();
  const ms = msBetween(killTime, await next.waitForReport("next", "held"));
  expect(ms).toBeLessThan(IMMEDIATE_MS);
  console.log(`figure: library holder killed on the Unix socket, next grant after ${ms.toFixed(1)} ms`);
});

test.concurrent("a library holder killed on TCP: the next grant follows when the lease has ended, not before", async ({
  harness,
}) => {
  const { url } = await harness.serve(["--listen", "holdfast://127.0.0.1:0"]);
  const holder = await startWorker(harness, url);
  const next = await startWorker(harness, url);
  holder.acquire("it", "k", { ttl: "2s" });
  await holder.waitForReport("it", "held");
  next.acquire("next", "k");
  await next.waitForReport("next", "asked");
  const killTime = monotonicNow();
  holder.kill();
  const requestReport = await holder.waitForReport("it", "asked");
  const granted = await next.waitForReport("next", "held");
  expect(msBetween(requestReport, granted)).toBeGreaterThanOrEqual(LEASE_MS);
  expect(msBetween(killTime, granted)).toBeLessThan(LEASE_MS + IMMEDIATE_MS);
  console.log(
    `figure: library holder killed on TCP (lease 2 s), next grant after ${msBetween(killTime, granted).toFixed(0)} ms`,
  );
});

test.concurrent.for(["unix", "tcp"])(
  "a waiter killed over %s leaves no queue entry: the next waiter is granted at once",
  async (kind, { harness }) => {
    const url = kind === "unix" ? "" : (await harness.serve(["--listen", "holdfast://127.0.0.1:0"])).url;
    const [holder, waiter, laterWaiter] = [
      await startWorker(harness, url),
      await startWorker(harness, url),
      await startWorker(harness, url),
    ];
    for (const [one, of] of [
      [holder, "holder"],
      [waiter, "waiter"],
      [laterWaiter, "behind"],
    ] as const) {
      one.acquire(of, "k");
      if (of === "holder") await one.waitForReport(of, "held");
      else await harness.waitForQueue(of === "waiter" ? 1 : 2, url === "" ? undefined : url);
    }
    waiter.kill();
    await waiter.ended;
    holder.send({ do: "release", of: "holder" });
    const report = await holder.waitForReport("holder", "released");
    const ms = msBetween(report, await laterWaiter.waitForReport("behind", "held"));
    expect(ms).toBeLessThan(IMMEDIATE_MS);
  },
);
