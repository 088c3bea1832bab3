import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import { until } from "../../src/testing/until.ts";
import { isAlive } from "../../src/torture/processes/process-tree.ts";
import type { TcpProxy } from "../../src/torture/tcp-proxy.ts";
import { tcpProxy } from "../../src/torture/tcp-proxy.ts";
import { openGate, writeChildScripts } from "../support/processes/child-scripts.ts";
import { createCounterWorkload } from "../support/processes/counter-workload.ts";
import type { FencedRegister } from "../support/processes/fenced-register.ts";
import { openFencedRegister } from "../support/processes/fenced-register.ts";
import type { ProcessHarness } from "../support/processes/process-harness.ts";
import { requireProcess, test } from "../support/processes/process-harness.ts";
import type { Worker } from "../support/processes/worker.ts";
import { msBetween, startWorker } from "../support/processes/worker.ts";

type ProxiedServer = {
  readonly proxy: TcpProxy;
  /** The server through the proxy, and directly. */
  readonly proxyUrl: string;
  readonly direct: string;
  [Symbol.asyncDispose](): Promise<void>;
};

async function startProxiedServer(harness: ProcessHarness): Promise<ProxiedServer> {
  const { url } = await harness.serve(["--listen", "holdfast://127.0.0.1:0"]);
  const proxy = await tcpProxy({ host: "127.0.0.1", port: Number(new URL(url).port) });
  const { address } = proxy;
  if ("path" in address) throw new Error("the proxy should listen on TCP");
  const proxyUrl = `holdfast://${address.host}:${address.port}`;
  return { proxy, proxyUrl, direct: url, [Symbol.asyncDispose]: () => proxy.close() };
}

const faults: Readonly<Record<string, (proxy: TcpProxy) => () => void>> = {
  "black-holed both ways": (proxy) => {
    proxy.toTarget.pause();
    proxy.toClient.pause();
    return () => {
      proxy.toTarget.resume();
      proxy.toClient.resume();
    };
  },
  "black-holed on the way to it": (proxy) => {
    proxy.toClient.pause();
    return () => proxy.toClient.resume();
  },
  "cut, and refused from then on": (proxy) => {
    proxy.refuseConnections(true);
    proxy.reset();
    return () => proxy.refuseConnections(false);
  },
};

/** Long enough that a busy machine does not end it before the fault. */
const LEASE_FLAGS = "3s";

/** A holder behind the proxy that writes as long as it considers the lock held. */
async function startBusyHolder(harness: ProcessHarness, proxyUrl: string, register: FencedRegister): Promise<Worker> {
  const holder = await startWorker(harness, proxyUrl, register.path);
  holder.acquire("it", "k", { ttl: LEASE_FLAGS });
  await holder.waitForReport("it", "held");
  holder.send({ do: "use", of: "it" });
  await until(() => register.log.length > 10, { within: 5_000, what: "writes of the holder" });
  return holder;
}

test.concurrent.for(Object.keys(faults))(
  "with its socket %s, a holder is notified before the next one enters, and works again after the repair",
  async (fault, { harness }) => {
    await using net = await startProxiedServer(harness);
    const register = await openFencedRegister(harness);
    const holder = await startBusyHolder(harness, net.proxyUrl, register);
    const next = await startWorker(harness, net.direct);
    next.acquire("next", "k");
    await harness.waitForQueue(1, net.direct);
    const heal = faults[fault]!(net.proxy);
    const lossReport = await holder.waitForReport("it", "lost");
    const stopped = await holder.waitForReport("it", "stopped");
    // its renewals may still reach the server, and extend its lease there
    const granted = await next.waitForReport("next", "held", 20_000);
    expect(BigInt(stopped.believedAt!)).toBeLessThan(BigInt(granted.at));
    // in the first round of its event loop that the machine allowed; usually long before
    expect(BigInt(lossReport.roundAt!)).toBeLessThan(BigInt(granted.at));
    heal();
    next.send({ do: "release", of: "next" });
    holder.acquire("again", "k");
    const secondReport = await holder.waitForReport("again", "held");
    expect(BigInt(secondReport.token!)).toBeGreaterThan(BigInt(granted.token!));
    console.log(
      `figure: holder ${fault} (lease 3 s): told ${msBetween(lossReport, granted).toFixed(0)} ms before the next one entered`,
    );
  },
);

test.concurrent("when the socket of a holder and a waiter is cut again and again, neither loses its lock or place, and no other client enters", async ({
  harness,
}) => {
  await using net = await startProxiedServer(harness);
  const holder = await startWorker(harness, net.proxyUrl);
  const waiter = await startWorker(harness, net.proxyUrl);
  const laterWaiter = await startWorker(harness, net.direct);
  holder.acquire("it", "k", { ttl: "5s" });
  await holder.waitForReport("it", "held");
  waiter.acquire("first", "k");
  await harness.waitForQueue(1, net.direct);
  laterWaiter.acquire("second", "k");
  await harness.waitForQueue(2, net.direct);
  // for longer than the lease
  for (let n = 0; n < 18; n++) {
    if (n % 2 === 0) net.proxy.reset();
    else net.proxy.disconnect();
    await delay(300);
  }
  expect(holder.reports().map(({ event }) => event)).not.toContain("lost");
  await until(() => net.proxy.connections() === 2, { within: 5_000, what: "both to be connected again" });
  holder.send({ do: "release", of: "it" });
  expect(await holder.waitForReport("it", "released")).toMatchObject({ kept: true });
  const first = await waiter.waitForReport("first", "held");
  waiter.send({ do: "release", of: "first" });
  const second = await laterWaiter.waitForReport("second", "held");
  expect(BigInt(second.token!)).toBeGreaterThan(BigInt(first.token!));
});

test.concurrent("a run whose socket is black-holed sends TERM, then KILL, before the lease can end: stubborn children are gone before the next run enters, exit 123", async ({
  harness,
}) => {
  await using net = await startProxiedServer(harness);
  const scripts = writeChildScripts(harness.folder);
  const run = harness.start([
    "run",
    "k",
    "--url",
    net.proxyUrl,
    "--ttl",
    "5s",
    "--grace",
    "1s",
    "--",
    ...scripts.stubborn,
  ]);
  const family = (await scripts.waitUntilWorking()).map(requireProcess);
  const next = harness.start(["run", "k", "--url", net.direct, "--", ...scripts.aliveCheck]);
  await harness.waitForQueue(1, net.direct);
  const heal = faults["black-holed both ways"]!(net.proxy);
  expect((await run.ended).code, run.err()).toBe(123);
  expect(run.err()).toMatch(/losing "k".*sent TERM/);
  expect(family.some(isAlive)).toBe(false);
  expect(await next.ended, next.out()).toEqual({ code: 0, signal: null });
  heal();
});

test.concurrent("with --on-lost ignore the same black hole lets two children overlap, and the check of the counter tests sees it", async ({
  harness,
}) => {
  await using net = await startProxiedServer(harness);
  const count = createCounterWorkload(harness.folder);
  const run = harness.start([
    "run",
    "k",
    "--url",
    net.proxyUrl,
    "--ttl",
    "1s",
    "--on-lost",
    "ignore",
    "--",
    ...count.command(harness.path("gate")),
  ]);
  await until(() => count.currentPid() !== null, { within: 5_000, what: "the child" });
  const next = harness.start(["run", "k", "--url", net.direct, "--", ...count.command(0)]);
  faults["black-holed both ways"]!(net.proxy);
  expect((await next.ended).code, next.err()).toBe(0);
  openGate(harness);
  expect((await run.ended).code, run.err()).toBe(0);
  expect(run.err()).toMatch(/continues without the lock/);
  const { faults: seen } = count.history();
  expect(seen.some((fault) => fault.startsWith("the last one was still alive"))).toBe(true);
  expect(seen.some((fault) => fault.startsWith("another one was inside"))).toBe(true);
  expect(seen.some((fault) => fault.startsWith("the counter is"))).toBe(true);
});
