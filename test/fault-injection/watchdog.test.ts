import { expect } from "vitest";
import { until } from "../../src/testing/until.ts";
import type { ProcessId } from "../../src/torture/processes/process-tree.ts";
import {
  commandLine,
  descendants,
  identifyProcess,
  isAlive,
  sendSignal,
} from "../../src/torture/processes/process-tree.ts";
import { PROGRAM } from "../support/cli-sandbox.ts";
import { writeChildScripts } from "../support/processes/child-scripts.ts";
import { requireProcess, test } from "../support/processes/process-harness.ts";
import { startInTerminal } from "../support/processes/pseudo-terminal.ts";

test.concurrent.for(["family", "stubborn"] as const)(
  "wrapper killed, %s children: they and their descendants are gone before another run enters",
  async (kind, { harness }) => {
    const scripts = writeChildScripts(harness.folder);
    const run = harness.start(["run", "k", "--grace", "300ms", "--", ...scripts[kind]]);
    const pids = await scripts.waitUntilWorking();
    const next = harness.start(["run", "k", "--", ...scripts.aliveCheck]);
    await harness.waitForQueue(1);
    const killedAt = performance.now();
    run.kill();
    expect(await next.ended, next.out()).toEqual({ code: 0, signal: null });
    expect(pids.some((pid) => identifyProcess(pid) !== null)).toBe(false);
    console.log(
      `figure: wrapper of ${kind} children killed (grace 300 ms), next run over after ${(performance.now() - killedAt).toFixed(0)} ms`,
    );
  },
);

test.concurrent("wrapper killed on TCP: stubborn children and their descendants are gone before the lease can end", async ({
  harness,
}) => {
  const { url } = await harness.serve(["--listen", "holdfast://127.0.0.1:0"]);
  const scripts = writeChildScripts(harness.folder);
  const run = harness.start(["run", "k", "--url", url, "--ttl", "5s", "--grace", "2s", "--", ...scripts.stubborn]);
  const pids = await scripts.waitUntilWorking();
  const family = pids.map(requireProcess);
  const next = harness.start(["run", "k", "--url", url, "--", ...scripts.aliveCheck]);
  await harness.waitForQueue(1, url);
  run.kill();
  const killedAt = performance.now();
  await until(() => !family.some(isAlive), { within: 10_000, what: "the end of the family" });
  const exitAfterMs = performance.now() - killedAt;
  expect(await next.ended, next.out()).toEqual({ code: 0, signal: null });
  console.log(
    `figure: wrapper killed on TCP (lease 5 s, grace 2 s): children gone after ${exitAfterMs.toFixed(0)} ms, next run over after ${(performance.now() - killedAt).toFixed(0)} ms`,
  );
});

test.concurrent("wrapper killed in a terminal, where its children share its group: they are gone before another run enters", async ({
  harness,
}) => {
  const scripts = writeChildScripts(harness.folder);
  const command = [process.execPath, PROGRAM, "run", "k", "--grace", "300ms", "--", ...scripts.stubborn].join(" ");
  const terminal = startInTerminal(harness, `${command}; sleep 60`);
  const pids = await scripts.waitUntilWorking();
  const wrapper = descendants(terminal.pid).find(({ pid }) => commandLine(pid) === command);
  expect(wrapper).toBeDefined();
  const next = harness.start(["run", "k", "--", ...scripts.aliveCheck]);
  await harness.waitForQueue(1);
  sendSignal(wrapper!, "SIGKILL");
  expect(await next.ended, next.out()).toEqual({ code: 0, signal: null });
  expect(pids.some((pid) => identifyProcess(pid) !== null)).toBe(false);
});

test.concurrent("wrapper and watchdog killed: on the socket the child keeps the lock by its keep-session connection until it ends", async ({
  harness,
}) => {
  const scripts = writeChildScripts(harness.folder);
  const run = harness.start(["run", "k", "--", ...scripts.stubborn]);
  const family = (await scripts.waitUntilWorking()).map(requireProcess);
  const watchdog = descendants(run.pid).find(({ pid }) => commandLine(pid).includes("holdfast-watchdog"));
  run.process.kill("SIGSTOP");
  sendSignal(watchdog!, "SIGKILL");
  run.kill();
  const earlyRun = harness.start(["run", "k", "--wait", "1s", "--", ...scripts.aliveCheck]);
  expect((await earlyRun.ended).code, earlyRun.out()).toBe(124);
  for (const processId of family) sendSignal(processId, "SIGKILL");
  const next = harness.start(["run", "k", "--", ...scripts.aliveCheck]);
  expect(await next.ended, next.out()).toEqual({ code: 0, signal: null });
});

test.concurrent.for(["SIGKILL", "SIGTERM"] as const)(
  "server ended by %s and started again, then the wrapper killed: stubborn children are gone before another run enters",
  async (name, { harness }) => {
    const scripts = writeChildScripts(harness.folder);
    const run = harness.start(["run", "k", "--grace", "1s", "--", ...scripts.stubborn]);
    await scripts.waitUntilWorking();
    const [before] = watchdogPids(run.pid);
    const [server] = harness.autostartedServers();
    sendSignal(server!, name);
    // a new watchdog has a keep-session connection to the new server; the children's one ended with the old server
    await until(() => watchdogPids(run.pid).length === 1 && watchdogPids(run.pid)[0]?.pid !== before?.pid, {
      within: 10_000,
      what: "the next watchdog",
    });
    const next = harness.start(["run", "k", "--", ...scripts.aliveCheck]);
    await harness.waitForQueue(1);
    run.kill();
    expect(await next.ended, next.out()).toEqual({ code: 0, signal: null });
  },
);

test.concurrent("a child that closes its inherited descriptors, the keep-session connection too, is gone before another run enters when its wrapper is killed", async ({
  harness,
}) => {
  const scripts = writeChildScripts(harness.folder);
  const closing = `exec 19>&-; exec "$@"`;
  const run = harness.start(["run", "k", "--grace", "1s", "--", "bash", "-c", closing, "bash", ...scripts.stubborn]);
  await scripts.waitUntilWorking();
  const next = harness.start(["run", "k", "--", ...scripts.aliveCheck]);
  await harness.waitForQueue(1);
  run.kill();
  expect(await next.ended, next.out()).toEqual({ code: 0, signal: null });
});

function watchdogPids(pid: number): ProcessId[] {
  return descendants(pid).filter((processId) => commandLine(processId.pid).includes("holdfast-watchdog"));
}
