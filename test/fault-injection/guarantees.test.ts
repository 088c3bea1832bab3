/**
 * The four parties that can fail, and the guarantees in each case: no two holders at once, tokens rise, a holder
 * learns of a loss before the next one enters, waiters are served, nothing is left behind.
 */

import { expect } from "vitest";
import { until } from "../../src/testing/until.ts";
import { sendSignal } from "../../src/torture/processes/process-tree.ts";
import { tcpProxy } from "../../src/torture/tcp-proxy.ts";
import { writeChildScripts } from "../support/processes/child-scripts.ts";
import { openFencedRegister } from "../support/processes/fenced-register.ts";
import type { ProcessHarness } from "../support/processes/process-harness.ts";
import { test } from "../support/processes/process-harness.ts";
import type { Report, Worker } from "../support/processes/worker.ts";
import { startWorker } from "../support/processes/worker.ts";

const GUARANTEES =
  "no two hold, the token rises, a loss is told before the next one enters, who waits is served, nothing is left";

/** Two waiters for "k", the second behind the first, and so many before them. */
async function startWaiters(harness: ProcessHarness, url?: string, before = 0): Promise<readonly [Worker, Worker]> {
  const [first, second] = [await startWorker(harness, url), await startWorker(harness, url)];
  first.acquire("it", "k");
  await harness.waitForQueue(before + 1, url);
  second.acquire("it", "k");
  await harness.waitForQueue(before + 2, url);
  return [first, second];
}

/** Both are served one after the other, with tokens above the given one, and nothing is left at the store. */
async function expectAllServed(
  harness: ProcessHarness,
  [first, second]: readonly [Worker, Worker],
  above: string,
  url?: string,
): Promise<Report> {
  const report = await first.waitForReport("it", "held");
  expect(BigInt(report.token!)).toBeGreaterThan(BigInt(above));
  expect(second.reports().some(({ event }) => event === "held")).toBe(false);
  first.send({ do: "release", of: "it" });
  const releaseReport = await first.waitForReport("it", "released");
  expect(releaseReport.kept).toBe(true);
  const two = await second.waitForReport("it", "held");
  expect(BigInt(two.token!)).toBeGreaterThan(BigInt(report.token!));
  second.send({ do: "release", of: "it" });
  expect(await second.waitForReport("it", "released")).toMatchObject({ kept: true });
  expect(await harness.list(url)).toEqual([]);
  return report;
}

test.concurrent(`the wrapper dies: ${GUARANTEES}`, async ({ harness }) => {
  const scripts = writeChildScripts(harness.folder);
  const run = harness.start(["run", "k", "--grace", "300ms", "--", ...scripts.stubborn]);
  await scripts.waitUntilWorking();
  const token = (await harness.list())[0]?.token as string;
  // the first thing that the next command does under the lock is to check whether one of them is alive
  const looker = harness.start(["run", "k", "--", ...scripts.aliveCheck]);
  await harness.waitForQueue(1);
  const waiters = await startWaiters(harness, undefined, 1);
  run.kill();
  expect(await looker.ended, looker.out()).toEqual({ code: 0, signal: null });
  await expectAllServed(harness, waiters, token);
});

test.concurrent(`the client dies: ${GUARANTEES}`, async ({ harness }) => {
  const holder = await startWorker(harness);
  holder.acquire("it", "k");
  const { token } = await holder.waitForReport("it", "held");
  const waiters = await startWaiters(harness);
  holder.kill();
  await expectAllServed(harness, waiters, token!);
});

test.concurrent(`the store dies: ${GUARANTEES}`, async ({ harness }) => {
  const register = await openFencedRegister(harness);
  const holder = await startWorker(harness, "", register.path);
  holder.acquire("it", "k");
  const { token } = await holder.waitForReport("it", "held");
  holder.send({ do: "use", of: "it" });
  const waiters = await startWaiters(harness);
  const [server] = harness.autostartedServers();
  sendSignal(server!, "SIGKILL");
  await until(() => harness.autostartedServerPids().length === 2, { within: 10_000, what: "the next server" });
  await harness.waitForQueue(2);
  // the lock outlives the server, so no holder loses it and no waiter enters
  expect(holder.reports().map(({ event }) => event)).not.toContain("lost");
  expect(waiters.flatMap((worker) => worker.reports()).some(({ event }) => event === "held")).toBe(false);
  const written = register.log.length;
  await until(() => register.log.length > written, { within: 5_000, what: "the holder to go on" });
  holder.send({ do: "release", of: "it" });
  expect(await holder.waitForReport("it", "released")).toMatchObject({ kept: true });
  await expectAllServed(harness, waiters, token!);
});

test.concurrent(`the network dies: ${GUARANTEES}`, async ({ harness }) => {
  const { url } = await harness.serve(["--listen", "holdfast://127.0.0.1:0"]);
  await using proxy = await tcpProxy({ host: "127.0.0.1", port: Number(new URL(url).port) });
  const { address } = proxy;
  const register = await openFencedRegister(harness);
  const proxyUrl = "port" in address ? `holdfast://127.0.0.1:${address.port}` : "";
  const holder = await startWorker(harness, proxyUrl, register.path);
  holder.acquire("it", "k", { ttl: "3s" });
  const { token } = await holder.waitForReport("it", "held");
  holder.send({ do: "use", of: "it" });
  const waiters = await startWaiters(harness, url);
  proxy.toTarget.pause();
  proxy.toClient.pause();
  const next = await expectAllServed(harness, waiters, token!, url);
  const lossReport = await holder.waitForReport("it", "lost");
  const stopped = await holder.waitForReport("it", "stopped");
  // in the first round of its event loop that the machine allowed
  expect(BigInt(lossReport.roundAt!)).toBeLessThan(BigInt(next.at));
  expect(BigInt(stopped.believedAt!)).toBeLessThan(BigInt(next.at));
});
