// A wrapper that falls silent (it is stopped) while its lease runs: src is called directly, so that a fault put into it is
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
import { commandLine, descendants, sendSignal } from "../../support/processes/process-tree.ts";
import { cleanUpAfterEach, createTemporaryDirectory, onCleanup } from "../../support/server-fixture.ts";
import { until } from "../../support/until.ts";

cleanUpAfterEach();

const GRACE_MS = 200;

/** Leads a group of its own and ignores TERM. */
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

test("when the guard has ended a child in silence, it notes in the file that the run has ended, not before", async () => {
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

test("a guard that replaces one that was killed ends the child in time, although its wrapper says nothing more", async () => {
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
  // the guard itself, and its timer, which would go on without it
  const both = await until(() => (watchdogProcesses().length === 2 ? watchdogProcesses() : null), {
    within: 3_500,
    what: "the timer",
  });
  for (const processId of both) sendSignal(processId, "SIGKILL");
  await until(() => child.signalCode !== null, { within: 15_000, what: "the end of the child" });
  await watchdog?.dismiss();
});
