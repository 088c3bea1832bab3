// The table of docs/guide/cli.md: which process dies, what happens to the command, when the lock is free. Each row on a server
// started on demand; two rows with each kind of claim.

import { expect } from "vitest";
import { until } from "../../src/testing/until.ts";
import type { ProcessId } from "../../src/torture/processes/process-tree.ts";
import { commandLine, descendants, isAlive, sendSignal } from "../../src/torture/processes/process-tree.ts";
import { PROGRAM } from "../support/cli-sandbox.ts";
import type { ExclusionScripts } from "../support/processes/exclusion-scripts.ts";
import { writeExclusionScripts } from "../support/processes/exclusion-scripts.ts";
import type { ProcessHarness, RunningProcess } from "../support/processes/process-harness.ts";
import { requireProcess, test } from "../support/processes/process-harness.ts";

type Victim = "wrapper" | "watchdog" | "command" | "server";

/** What happens to the command. orphan: it continues, and no process is left to end it. */
type Outcome = "ended by the watchdog" | "goes on" | "over" | "orphan";

const ROWS: readonly (readonly [killed: readonly Victim[], then: Outcome])[] = [
  [["wrapper"], "ended by the watchdog"],
  [["watchdog"], "goes on"],
  [["command"], "over"],
  [["server"], "goes on"],
  [["wrapper", "watchdog"], "orphan"],
  [["wrapper", "command"], "over"],
  [["wrapper", "server"], "ended by the watchdog"],
  [["watchdog", "command"], "over"],
  [["watchdog", "server"], "goes on"],
  [["command", "server"], "over"],
  [["wrapper", "watchdog", "server"], "orphan"],
];

test.concurrent.for(ROWS)("killed: %s; its command: %s", async ([killed, then], { harness }) => {
  const scripts = writeExclusionScripts(harness.folder);
  const run = harness.start(["run", "k", "--grace", "1s", "--", ...scripts.untilGate("k", "stubborn")]);
  const command = requireProcess(await scripts.waitForWorker("k"));
  killVictim(harness, run, command, killed);
  await expectOutcome(harness, scripts, command, then);
  if (killed.includes("wrapper")) return;
  const code = killed.includes("command") ? 137 : 0;
  expect(await run.ended, run.err()).toEqual({ code, signal: null });
});

test.concurrent("wrapper killed, with a long lease: the lock is free when the command is gone, without waiting for the lease", async ({
  harness,
}) => {
  const scripts = writeExclusionScripts(harness.folder);
  const run = harness.start(["run", "k", "--ttl", "10m", "--grace", "1s", "--", ...scripts.untilGate("k", "stubborn")]);
  const command = requireProcess(await scripts.waitForWorker("k"));
  killVictim(harness, run, command, ["wrapper"]);
  await expectOutcome(harness, scripts, command, "ended by the watchdog");
});

const KINDS: readonly (readonly [name: string, flags: readonly string[], next: readonly string[]])[] = [
  ["a lease of 2 s", ["k", "--ttl", "2s"], ["k"]],
  ["several keys", ["k", "l"], ["l"]],
  ["shared", ["k", "--shared"], ["k"]],
  ["permits", ["k", "--permits", "2/3"], ["k", "--permits", "2/3"]],
];

test.concurrent.for(KINDS)(
  "wrapper, watchdog and server killed, %s: the command keeps its locks",
  async ([, flags, next], { harness }) => {
    const scripts = writeExclusionScripts(harness.folder);
    const run = harness.start(["run", ...flags, "--", ...scripts.untilGate("k", "stubborn")]);
    const command = requireProcess(await scripts.waitForWorker("k"));
    killVictim(harness, run, command, ["wrapper", "watchdog", "server"]);
    // longer than the lease
    const earlyRun = harness.start(["run", ...next, "--wait", "3s", "--", ...scripts.enterAndLeave("k")]);
    expect((await earlyRun.ended).code, earlyRun.err()).toBe(124);
    await expectOutcome(harness, scripts, command, "orphan", next);
  },
);

test.concurrent("two shared runs, wrappers and server killed: a third shared run enters beside them, an exclusive one after both", async ({
  harness,
}) => {
  const scripts = writeExclusionScripts(harness.folder);
  const both = ["slow", "stubborn"] as const;
  const runs = both.map((manner) =>
    harness.start(["run", "k", "--shared", "--grace", "2s", "--", ...scripts.untilGateShared("k", manner)]),
  );
  await until(() => scripts.workerPids("k").length === 2, { within: 15_000, what: "both at work" });
  const commands = scripts.workerPids("k").map(requireProcess);
  const [server] = harness.autostartedServers();
  for (const run of runs) run.kill();
  sendSignal(server!, "SIGKILL");
  const third = harness.start(["run", "k", "--shared", "--no-wait", "--", "true"]);
  expect((await third.ended).code, third.err()).toBe(0);
  const next = harness.start(["run", "k", "--", ...scripts.enterAndLeave("k")]);
  expect(await next.ended, next.err()).toEqual({ code: 0, signal: null });
  expect(commands.some(isAlive)).toBe(false);
  expect(scripts.overlaps()).toEqual([]);
});

test.concurrent("a run inside a run, of the same key and one more: all Node processes killed, both keys stay held until the command is gone", async ({
  harness,
}) => {
  const scripts = writeExclusionScripts(harness.folder);
  const inner = [
    process.execPath,
    PROGRAM,
    "run",
    "k",
    "l",
    "--grace",
    "2s",
    "--",
    ...scripts.untilGate("k", "stubborn"),
  ];
  const outer = harness.start(["run", "k", "--", ...inner]);
  const command = requireProcess(await scripts.waitForWorker("k"));
  const nodeProcesses = descendants(outer.pid).filter(({ pid }) => commandLine(pid).includes(PROGRAM));
  const [server] = harness.autostartedServers();
  for (const processId of nodeProcesses) sendSignal(processId, "SIGSTOP");
  outer.kill();
  for (const processId of [...nodeProcesses, server!]) sendSignal(processId, "SIGKILL");
  const next = ["k", "l"].map((key) => harness.start(["run", key, "--", ...scripts.enterAndLeave(key)]));
  for (const run of next) {
    expect(await run.ended, run.err()).toEqual({ code: 0, signal: null });
    expect(isAlive(command)).toBe(false);
  }
  expect(scripts.faults(["k"])).toEqual([]);
});

/** All at one moment: every process that could react is stopped first. */
function killVictim(
  harness: ProcessHarness,
  run: RunningProcess,
  command: ProcessId,
  victims: readonly Victim[],
): void {
  // with a lease a watchdog has a second process, which waits for the end of the lease; each renewal replaces it
  const watchdogs = (): ProcessId[] =>
    descendants(run.pid).filter(({ pid }) => commandLine(pid).includes("holdfast-watchdog"));
  const [server] = harness.autostartedServers();
  run.process.kill("SIGSTOP");
  for (const processId of watchdogs()) sendSignal(processId, "SIGSTOP");
  const stopped = watchdogs();
  expect([stopped.length > 0, server === undefined]).toEqual([true, false]);
  if (victims.includes("server")) sendSignal(server!, "SIGKILL");
  for (const processId of stopped) sendSignal(processId, victims.includes("watchdog") ? "SIGKILL" : "SIGCONT");
  if (victims.includes("command")) sendSignal(command, "SIGKILL");
  if (victims.includes("wrapper")) run.kill();
  else run.process.kill("SIGCONT");
}

async function expectOutcome(
  harness: ProcessHarness,
  scripts: ExclusionScripts,
  command: ProcessId,
  outcome: Outcome,
  keys: readonly string[] = ["k"],
): Promise<void> {
  const commandContinues = outcome === "goes on" || outcome === "orphan";
  if (commandContinues) {
    const earlyRun = harness.start(["run", ...keys, "--wait", "2s", "--", ...scripts.enterAndLeave("k")]);
    expect((await earlyRun.ended).code, earlyRun.err()).toBe(124);
    expect(isAlive(command)).toBe(true);
  }
  const next = harness.start(["run", ...keys, "--", ...scripts.enterAndLeave("k")]);
  if (commandContinues) await harness.waitForQueue(1);
  if (outcome === "goes on") scripts.openGate("k");
  if (outcome === "orphan") sendSignal(command, "SIGKILL");
  expect(await next.ended, next.err()).toEqual({ code: 0, signal: null });
  expect(isAlive(command)).toBe(false);
  expect(scripts.faults(["k"])).toEqual([]);
}
