import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import { until } from "../../src/testing/until.ts";
import type { ProcessId } from "../../src/torture/processes/process-tree.ts";
import { descendants, sendSignal } from "../../src/torture/processes/process-tree.ts";
import { GATED_COMMAND, openGate } from "../support/processes/child-scripts.ts";
import { IS_LONG_RUN, requireProcess, test } from "../support/processes/process-harness.ts";
import { expectStaleHolderRejected } from "../support/processes/stale-holder.ts";
import { startWorker } from "../support/processes/worker.ts";

/** A silent session lasts 30 s: if silence ended this one, a stop of 40 s would show it. */
const STOPPED_MS = IS_LONG_RUN ? 40_000 : 2_000;

test.concurrent("a holder stopped past its lease on TCP and resumed learns of the loss before it can write, and a fenced register refuses its token", async ({
  harness,
}) => {
  const { url } = await harness.serve(["--listen", "holdfast://127.0.0.1:0"]);
  await expectStaleHolderRejected(harness, url);
});

test.concurrent("a session holder stopped on the Unix socket keeps its lock, and continues with it when resumed", {
  timeout: STOPPED_MS + 30_000,
}, async ({ harness }) => {
  const holder = await startWorker(harness);
  const next = await startWorker(harness);
  holder.acquire("it", "k", { ttl: "session" });
  await holder.waitForReport("it", "held");
  holder.stop();
  next.acquire("next", "k");
  await next.waitForReport("next", "asked");
  await delay(STOPPED_MS);
  expect(next.reports().some(({ event }) => event === "held")).toBe(false);
  holder.resume();
  holder.send({ do: "release", of: "it" });
  expect(await holder.waitForReport("it", "released")).toMatchObject({ kept: true });
  await next.waitForReport("next", "held");
});

test.concurrent("a run that is stopped with its command (Ctrl-Z) keeps its lock, and both continue when resumed", {
  timeout: STOPPED_MS + 30_000,
}, async ({ harness }) => {
  const run = harness.start(["run", "k", "--", ...GATED_COMMAND]);
  await until(() => run.out() !== "", { within: 10_000, what: "the command" });
  const job: ProcessId[] = [requireProcess(run.pid), ...descendants(run.pid)];
  for (const processId of job) sendSignal(processId, "SIGSTOP");
  const otherRun = harness.start(["run", "k", "--wait", `${STOPPED_MS}ms`, "--", "true"]);
  expect((await otherRun.ended).code).toBe(124);
  for (const processId of job) sendSignal(processId, "SIGCONT");
  openGate(harness);
  expect(await run.ended).toEqual({ code: 0, signal: null });
  expect(run.err()).toBe("");
});
