// A wrapper that is stopped while its lease runs out: src is called directly, so that a fault put into it is
// noticed.

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { RunFile } from "../../../src/cli/commands/run/run-file.ts";
import { startWatchdog } from "../../../src/cli/commands/run/watchdog.ts";
import { superviseWatchdog } from "../../../src/cli/commands/run/watchdog-supervisor.ts";
import { memory } from "../../../src/drivers/memory.ts";
import { END_LINE } from "../../../src/server/runs/run-file-format.ts";
import type { ProcessId } from "../../support/processes/process-tree.ts";
import { commandLine, descendants, isAlive, sendSignal } from "../../support/processes/process-tree.ts";
import { cleanUpAfterEach, createTemporaryDirectory, onCleanup } from "../../support/server-fixture.ts";
import { until } from "../../support/until.ts";

cleanUpAfterEach();

const GRACE_MS = 200;

/** Leads its own group and ignores TERM. */
function startStubbornChild(): ChildProcess & { readonly pid: number } {
  const child = spawn("sh", ["-c", "trap '' TERM; while sleep 0.05; do :; done"], { detached: true, stdio: "ignore" });
  onCleanup(() => {
    if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
  });
  return child as ChildProcess & { readonly pid: number };
}

function createRunFile(): RunFile & { readonly text: () => string } {
  const path = join(createTemporaryDirectory(), "a.run");
  writeFileSync(path, "the head\n\n\n", { mode: 0o600 });
  const descriptor = openSync(path, "r+");
  onCleanup(() => closeSync(descriptor));
  return {
    path,
    descriptor,
    isKeptByServer: false,
    addProcess: () => undefined,
    remove: () => undefined,
    text: () => readFileSync(path, "utf8"),
  };
}

const watchdogProcesses = () =>
  descendants(process.pid).filter(({ pid }) => commandLine(pid).includes("holdfast-guard"));

test("a watchdog that has ended a child of a stopped wrapper then notes in the file that the run has ended, not before", async () => {
  const runFile = createRunFile();
  const child = startStubbornChild();
  const exit = once(child, "exit");
  const watchdog = await startWatchdog({
    hasOwnGroup: true,
    graceMs: GRACE_MS,
    token: "4712",
    runFile,
    onDeath: () => undefined,
  });
  watchdog.watch(child.pid);
  watchdog.setDeadline(100);
  const hadEnded = until(() => runFile.text().includes("ended"), { within: 20_000, what: "the note in the file" });
  expect(await Promise.race([exit, hadEnded.then(() => "noted before the end of the child")])).toEqual([
    null,
    "SIGKILL",
  ]);
  await hadEnded;
  expect(runFile.text()).toBe(`the head\n\n\n${END_LINE}`);
  await watchdog.dismiss();
});

/** The shell of a watchdog, which leads its group, and the timer below it. */
async function waitForShellAndTimer(
  within = 15_000,
): Promise<{ readonly shell: ProcessId; readonly timer: ProcessId }> {
  return await until(
    () => {
      const all = watchdogProcesses();
      const isBelow = (processId: ProcessId, { pid }: ProcessId): boolean =>
        descendants(pid).some((descendant) => descendant.pid === processId.pid);
      const timer = all.find((processId) => all.some((other) => isBelow(processId, other)));
      const shell = all.find((processId) => processId !== timer);
      return all.length === 2 && shell !== undefined && timer !== undefined ? { shell, timer } : null;
    },
    { within, what: "the timer" },
  );
}

test("the shell of a watchdog is killed, its timer is not: when the next watchdog is armed the timer ends, and the command with the renewed lease lives", async () => {
  const runFile = createRunFile();
  const child = startStubbornChild();
  const watchdog = await superviseWatchdog({
    driver: memory(),
    hasOwnGroup: true,
    graceMs: GRACE_MS,
    token: "4714",
    keepSessionSocket: null,
    runFile,
  });
  watchdog?.watch(child.pid);
  watchdog?.setDeadline(40_000);
  const { shell, timer } = await waitForShellAndTimer();
  sendSignal(shell, "SIGKILL");
  await until(() => !isAlive(timer), { within: 15_000, what: "the end of the old timer, before its time is over" });
  watchdog?.setDeadline(60_000);
  const next = await waitForShellAndTimer();
  expect(next.shell.pid).not.toBe(shell.pid);
  expect({ exit: child.exitCode, signal: child.signalCode, text: runFile.text() }).toEqual({
    exit: null,
    signal: null,
    text: "the head\n\n\n",
  });
  await watchdog?.dismiss();
  await until(() => watchdogProcesses().length === 0, { within: 15_000, what: "the end of the watchdog" });
});

test("the shell of a watchdog has died when its command ends: its timer, which has the lock of the run's file, ends with it", async () => {
  const child = startStubbornChild();
  let hasDied = false;
  const watchdog = await startWatchdog({
    hasOwnGroup: true,
    graceMs: GRACE_MS,
    token: "4715",
    runFile: createRunFile(),
    onDeath: () => {
      hasDied = true;
    },
  });
  watchdog.watch(child.pid);
  watchdog.setDeadline(40_000);
  const { shell, timer } = await waitForShellAndTimer();
  sendSignal(shell, "SIGKILL");
  await until(() => hasDied, { within: 15_000, what: "the end of the shell" });
  await watchdog.dismiss();
  await until(() => !isAlive(timer), { within: 15_000, what: "the end of the timer" });
});

test("a watchdog that replaces a killed one ends the child in time, although its wrapper is stopped", async () => {
  const child = startStubbornChild();
  const watchdog = await superviseWatchdog({
    driver: memory(),
    hasOwnGroup: true,
    graceMs: GRACE_MS,
    token: "4713",
    keepSessionSocket: null,
    runFile: null,
  });
  watchdog?.watch(child.pid);
  watchdog?.setDeadline(4_000);
  const { shell, timer } = await waitForShellAndTimer(3_500);
  for (const processId of [shell, timer]) sendSignal(processId, "SIGKILL");
  await until(() => child.signalCode !== null, { within: 15_000, what: "the end of the child" });
  await watchdog?.dismiss();
});
