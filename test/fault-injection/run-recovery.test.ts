import { readdirSync } from "node:fs";
import { expect } from "vitest";
import { until } from "../../src/testing/until.ts";
import type { ProcessId } from "../../src/torture/processes/process-tree.ts";
import { commandLine, descendants, isAlive, sendSignal } from "../../src/torture/processes/process-tree.ts";
import { PROGRAM } from "../support/cli-sandbox.ts";
import { writeExclusionScripts } from "../support/processes/exclusion-scripts.ts";
import type { ProcessHarness, RunningProcess, RunningServer } from "../support/processes/process-harness.ts";
import { requireProcess, test, waitUntilListening } from "../support/processes/process-harness.ts";

/** The time left for the command of a run whose wrapper is dead. */
const GRACE_FLAGS = ["--grace", "2s"];

test.concurrent.for(["at once", "a moment later"] as const)(
  "on demand: wrapper killed, server killed %s: no other run enters beside the command, other keys are free",
  async (when, { harness }) => {
    const scripts = writeExclusionScripts(harness.folder);
    const run = harness.start(["run", "k", ...GRACE_FLAGS, "--", ...scripts.untilGate("k", "stubborn")]);
    const command = requireProcess(await scripts.waitForWorker("k"));
    const [server] = harness.autostartedServers();
    run.kill();
    if (when === "a moment later") await until(() => run.hasEnded(), { within: 5_000, what: "the end of the wrapper" });
    sendSignal(server!, "SIGKILL");
    await expectNextEnters(harness, scripts, command, []);
  },
);

test.concurrent("all Node processes killed at once, wrappers of four keys and the server on demand: no run enters beside a command", async ({
  harness,
}) => {
  const scripts = writeExclusionScripts(harness.folder);
  const keys = ["a", "b", "c", "d"];
  const runs = keys.map((key) => harness.start(["run", key, ...GRACE_FLAGS, "--", ...scripts.untilGate(key, "slow")]));
  for (const key of keys) await scripts.waitForWorker(key);
  const [server] = harness.autostartedServers();
  for (const run of runs) run.kill();
  sendSignal(server!, "SIGKILL");
  const next = keys.map((key) => harness.start(["run", key, "--", ...scripts.enterAndLeave(key)]));
  for (const run of next) expect(await run.ended, run.err()).toEqual({ code: 0, signal: null });
  expect(scripts.faults(keys)).toEqual([]);
});

test.concurrent.for([
  ["SIGKILL", "wrapper first"],
  ["SIGTERM", "wrapper first"],
  ["SIGTERM", "server first"],
] as const)(
  "own server ended by %s and started again, %s: no other run enters beside the command, other keys are free",
  async ([name, order], { harness }) => {
    const scripts = writeExclusionScripts(harness.folder);
    const server = await harness.serve();
    const url = ["--url", server.url];
    const run = harness.start(["run", "k", ...url, ...GRACE_FLAGS, "--", ...scripts.untilGate("k", "stubborn")]);
    const command = requireProcess(await scripts.waitForWorker("k"));
    if (order === "wrapper first") run.kill();
    await waitForRunEnd(server, name);
    if (order === "server first") run.kill();
    await harness.serve();
    await expectNextEnters(harness, scripts, command, url);
  },
);

test.concurrent("wrapper stopped, server killed and started again: the command keeps its key and no other, and both continue when resumed", async ({
  harness,
}) => {
  const scripts = writeExclusionScripts(harness.folder);
  const before = await harness.serve();
  const url = ["--url", before.url];
  const run = harness.start(["run", "k", ...url, "--", ...scripts.untilGate("k", "obedient")]);
  await scripts.waitForWorker("k");
  run.process.kill("SIGSTOP");
  await waitForRunEnd(before, "SIGKILL");
  await harness.serve();
  // recovery need not wait: this run's claims are known
  expect(await enters(harness, "other", [...url, "--wait", "8s"])).toBe(0);
  expect(await enters(harness, "k", [...url, "--wait", "1s"])).toBe(124);
  run.process.kill("SIGCONT");
  scripts.openGate("k");
  expect(await run.ended, run.err()).toEqual({ code: 0, signal: null });
  expect(await enters(harness, "k", [...url, "--wait", "8s"])).toBe(0);
  expect(scripts.faults(["k"])).toEqual([]);

  function enters(harness: ProcessHarness, key: string, args: readonly string[]): Promise<number | null> {
    return harness.start(["run", key, ...args, "--", ...scripts.enterAndLeave(key)]).ended.then(({ code }) => code);
  }
});

test.concurrent.for([
  ["server goes on", "its"],
  ["server goes on", "another"],
  ["server killed and started again", "its"],
  ["server killed and started again", "another"],
] as const)(
  "a command that closed its inherited descriptors, wrapper and watchdog killed, %s in %s pid namespace: it keeps the lock until it ends",
  async ([then, namespace], { harness, skip }) => {
    if (namespace === "another" && process.getuid?.() !== 0) skip("only root makes a pid namespace with its /proc");
    const scripts = writeExclusionScripts(harness.folder);
    const server = await harness.serve();
    const url = ["--url", server.url];
    const args = ["run", "k", ...url, "--", ...scripts.untilGateClosedDescriptors("k", "stubborn")];
    const run = namespace === "its" ? harness.start(args) : harness.startProgram(inPidNamespace(args));
    await scripts.waitForWorker("k");
    const command = find(run, /^sh judged\.sh/);
    killWithWatchdog(run);
    if (then !== "server goes on") {
      await waitForRunEnd(server, "SIGKILL");
      await harness.serve();
    }
    const earlyRun = harness.start(["run", "k", ...url, "--wait", "1s", "--", ...scripts.enterAndLeave("k")]);
    expect((await earlyRun.ended).code, earlyRun.err()).toBe(124);
    // the wrapper has ended: the message names what works
    expect(earlyRun.err()).toContain(`, kept by pid ${command.pid} (sh)`);
    sendSignal(command, "SIGKILL");
    const next = harness.start(["run", "k", ...url, "--wait", "10s", "--", ...scripts.enterAndLeave("k")]);
    expect(await next.ended, next.err()).toEqual({ code: 0, signal: null });
    expect(scripts.faults(["k"])).toEqual([]);
  },
);

test.concurrent("a server in a pid namespace of its own does not see a run: it keeps the lock of a command that closed its descriptors for a minute", async ({
  harness,
  skip,
}) => {
  if (process.getuid?.() !== 0) skip("only root makes a pid namespace with its /proc");
  const scripts = writeExclusionScripts(harness.folder);
  const socket = `holdfast+unix:${harness.path("socket")}`;
  const args = ["serve", "--listen", socket, "--state", harness.path("state")];
  const server = await waitUntilListening(harness.startProgram(inPidNamespace(args)));
  const url = ["--url", server.url];
  const run = harness.start(["run", "k", ...url, "--", ...scripts.untilGateClosedDescriptors("k", "stubborn")]);
  const command = requireProcess(await scripts.waitForWorker("k"));
  killWithWatchdog(run);
  const earlyRun = harness.start(["run", "k", ...url, "--wait", "2s", "--", ...scripts.enterAndLeave("k")]);
  expect((await earlyRun.ended).code, earlyRun.err()).toBe(124);
  sendSignal(command, "SIGKILL");
  expect(scripts.faults(["k"])).toEqual([]);
});

test.concurrent("a daemon that inherited the lock keeps it after wrapper, watchdog and command were killed, and is named", async ({
  harness,
}) => {
  const scripts = writeExclusionScripts(harness.folder);
  const server = await harness.serve();
  const url = ["--url", server.url];
  const command = ["setsid", ...scripts.untilGate("k", "obedient")];
  const run = harness.start(["run", "k", ...url, "--", "sh", "-c", '"$@" & wait; exit', "sh", ...command]);
  const daemon = requireProcess(await scripts.waitForWorker("k"));
  const parent = find(run, /^sh -c "/);
  killWithWatchdog(run);
  sendSignal(parent, "SIGKILL");
  const named = `, kept by pid ${daemon.pid} (sh)`;
  await until(async () => (await harness.list(server.url))[0]?.label.endsWith(named), { within: 8_000, what: named });
  scripts.openGate("k");
  const next = harness.start(["run", "k", ...url, "--wait", "10s", "--", ...scripts.enterAndLeave("k")]);
  expect(await next.ended, next.err()).toEqual({ code: 0, signal: null });
  expect(scripts.faults(["k"])).toEqual([]);
});

test.concurrent.for([
  ["released", "SIGTERM", "obedient"],
  ["released", "SIGKILL", "stubborn"],
  ["held", "SIGTERM", "stubborn"],
  ["held", "SIGKILL", "obedient"],
] as const)(
  "wrapper stopped until its lease has ended, its key %s by another run, server ended by %s and started again: the lease stays ended",
  async ([then, name, manner], { harness }) => {
    const scripts = writeExclusionScripts(harness.folder);
    const before = await harness.serve();
    const url = ["--url", before.url];
    const run = harness.start(["run", "k", ...url, "--ttl", "5s", "--", ...scripts.untilGate("k", manner)]);
    const command = requireProcess(await scripts.waitForWorker("k"));
    run.process.kill("SIGSTOP");
    const otherRun = harness.start(["run", "k", ...url, "--", ...scripts.untilGate("k", "obedient")]);
    await until(() => scripts.workerPids("k").length === 2, { within: 15_000, what: "the other at work" });
    expect(isAlive(command)).toBe(false);
    const waitForLeave = async (): Promise<void> => {
      scripts.openGate("k");
      expect(await otherRun.ended, otherRun.err()).toEqual({ code: 0, signal: null });
    };
    if (then === "released") await waitForLeave();
    await waitForRunEnd(before, name);
    await harness.serve();
    if (then === "held") {
      const earlyRun = harness.start(["run", "k", ...url, "--wait", "1s", "--", ...scripts.enterAndLeave("k")]);
      expect((await earlyRun.ended).code, earlyRun.err()).toBe(124);
      expect(await harness.list(before.url)).toHaveLength(1);
      await waitForLeave();
    }
    const next = harness.start(["run", "k", ...url, "--wait", "8s", "--", ...scripts.enterAndLeave("k")]);
    expect(await next.ended, next.err()).toEqual({ code: 0, signal: null });
    run.process.kill("SIGCONT");
    expect((await run.ended).code, run.err()).toBe(123);
    expect(scripts.faults(["k"])).toEqual([]);
    expect(readdirSync(harness.path("state/runs"))).toEqual([]);
  },
);

test.concurrent("a run inside a run, several keys: the outer wrapper stopped until its lease has ended, server killed and started again: all keys are free", async ({
  harness,
}) => {
  const scripts = writeExclusionScripts(harness.folder);
  const before = await harness.serve();
  const url = ["--url", before.url];
  const inner = [process.execPath, PROGRAM, "run", "k", "l", ...url, "--", ...scripts.untilGate("k", "stubborn")];
  const outer = harness.start(["run", "j", "k", ...url, "--ttl", "4s", "--", ...inner]);
  const command = requireProcess(await scripts.waitForWorker("k"));
  outer.process.kill("SIGSTOP");
  await until(() => !isAlive(command), { within: 15_000, what: "the end of the command" });
  const waitForEnter = async (): Promise<void> => {
    for (const key of ["j", "k", "l"]) {
      const next = harness.start(["run", key, ...url, "--wait", "8s", "--", ...scripts.enterAndLeave(key)]);
      expect(await next.ended, next.err()).toEqual({ code: 0, signal: null });
    }
  };
  await waitForEnter();
  await waitForRunEnd(before, "SIGKILL");
  await harness.serve();
  await waitForEnter();
  outer.process.kill("SIGCONT");
  expect((await outer.ended).code, outer.err()).toBe(123);
  expect(scripts.faults(["k"])).toEqual([]);
  expect(readdirSync(harness.path("state/runs"))).toEqual([]);
});

/** `holdfast` with these arguments, below the first process of a pid namespace of its own, which outlives it. */
function inPidNamespace(args: readonly string[]): readonly [string, ...string[]] {
  const flags = ["--pid", "--fork", "--kill-child", "--mount-proc"];
  return ["unshare", ...flags, "sh", "-c", '"$@" & wait; sleep 60', "sh", process.execPath, PROGRAM, ...args];
}

/** The process of this run with such a command line. */
function find(run: RunningProcess, line: RegExp): ProcessId {
  const found = [requireProcess(run.pid), ...descendants(run.pid)].find(({ pid }) => line.test(commandLine(pid)));
  if (found === undefined) throw new Error(`no process of the run is ${line}`);
  return found;
}

/** Both at one moment: the wrapper cannot act in between. */
function killWithWatchdog(run: RunningProcess): void {
  const wrapper = find(run, /^\S*node\S* /);
  const guards = descendants(wrapper.pid).filter(({ pid }) => commandLine(pid).includes("holdfast-watchdog"));
  expect(guards).toHaveLength(1);
  sendSignal(wrapper, "SIGSTOP");
  for (const watchdog of guards) sendSignal(watchdog, "SIGKILL");
  sendSignal(wrapper, "SIGKILL");
}

async function waitForRunEnd(server: RunningServer, name: NodeJS.Signals): Promise<void> {
  server.process.kill(name);
  await server.ended;
}

/** Another key is free while the command runs; its own key is free once it has ended. */
async function expectNextEnters(
  harness: ProcessHarness,
  scripts: ReturnType<typeof writeExclusionScripts>,
  command: ProcessId,
  url: readonly string[],
): Promise<void> {
  const otherRun = harness.start(["run", "other", ...url, "--wait", "10s", "--", "true"]);
  const next = harness.start(["run", "k", ...url, "--", ...scripts.enterAndLeave("k")]);
  expect(await next.ended, next.err()).toEqual({ code: 0, signal: null });
  expect(isAlive(command)).toBe(false);
  expect(await otherRun.ended, otherRun.err()).toEqual({ code: 0, signal: null });
  expect(scripts.faults(["k"])).toEqual([]);
}
