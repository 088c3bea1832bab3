// A wrapper that is stopped while its lease runs out, and watchdogs that die or are replaced: src is called directly, so that
// a fault put into it is noticed.

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync, writeFileSync } from "node:fs";
import type { Socket } from "node:net";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Watchdog, WatchdogOptions } from "../../../src/cli/commands/run/watchdog.ts";
import { startWatchdog } from "../../../src/cli/commands/run/watchdog.ts";
import type { KeepSessionSocket } from "../../../src/drivers/server/keep-session.ts";
import { END_LINE } from "../../../src/server/runs/run-file-format.ts";
import type { RunFile } from "../../../src/server/runs/run-file-writer.ts";
import { until } from "../../../src/testing/until.ts";
import type { ProcessId } from "../../../src/torture/processes/process-tree.ts";
import {
  commandLine,
  descendants,
  identifyProcess,
  isAlive,
  sendSignal,
} from "../../../src/torture/processes/process-tree.ts";
import { cleanUpAfterEach, createTemporaryDirectory, onCleanup } from "../../support/server-fixture.ts";

cleanUpAfterEach();

const GRACE_MS = 200;

/** Leads its own group and ignores TERM. */
function startStubbornChild(): ChildProcess & { readonly pid: number } {
  return startChild("trap '' TERM; while sleep 0.05; do :; done");
}

function startChild(script: string): ChildProcess & { readonly pid: number } {
  const child = spawn("sh", ["-c", script], { detached: true, stdio: "ignore" });
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

/** A watchdog of a child with its own group, on a store without keep-session connections. */
async function startTestWatchdog(token: string, options: Partial<WatchdogOptions> = {}): Promise<Watchdog> {
  const watchdog = await startWatchdog({
    hasOwnGroup: true,
    graceMs: GRACE_MS,
    token,
    keepSessionSocket: null,
    reopenKeepSession: async () => null,
    runFile: null,
    ...options,
  });
  // one that a failed test leaves stopped would stay
  onCleanup(() => (watchdog as Watchdog).dismiss());
  return watchdog as Watchdog;
}

const watchdogProcesses = () =>
  descendants(process.pid).filter(({ pid }) => commandLine(pid).includes("holdfast-watchdog"));

test("a watchdog that has ended a child of a stopped wrapper then notes in the file that the run has ended, not before", async () => {
  const runFile = createRunFile();
  const child = startStubbornChild();
  const childId = identifyProcess(child.pid) as ProcessId;
  const exit = once(child, "exit");
  const watchdog = await startTestWatchdog("4712", { runFile });
  watchdog.watch(child.pid);
  watchdog.setDeadline(100);
  const wasAlive = await until(() => (runFile.text().includes("ended") ? { atNote: isAlive(childId) } : null), {
    within: 20_000,
    what: "the note in the file",
  });
  expect(wasAlive).toEqual({ atNote: false });
  expect(await exit).toEqual([null, "SIGKILL"]);
  expect(runFile.text()).toBe(`the head\n\n\n${END_LINE}`);
  await watchdog.dismiss();
});

test("a wrapper that is stopped right after the start of its command: the timer, which is older than the command, ends it", async () => {
  // the environment of the child has no token, by which the watchdog could find it
  const child = startStubbornChild();
  const watchdog = await startTestWatchdog("4713");
  watchdog.setDeadline(100);
  watchdog.watch(child.pid);
  expect(await until(() => child.signalCode, { within: 10_000, what: "the end of the command" })).toBe("SIGKILL");
  await watchdog.dismiss();
});

/** The shell of a watchdog, which leads its group, and the timer below it. */
async function waitForShellAndTimer(
  timeoutMs = 15_000,
): Promise<{ readonly shell: ProcessId; readonly timer: ProcessId }> {
  return await until(
    () => {
      const watchdogs = watchdogProcesses();
      const isBelow = (processId: ProcessId, { pid }: ProcessId): boolean =>
        descendants(pid).some((descendant) => descendant.pid === processId.pid);
      const timer = watchdogs.find((processId) => watchdogs.some((other) => isBelow(processId, other)));
      const shell = watchdogs.find((processId) => processId !== timer);
      return watchdogs.length === 2 && shell !== undefined && timer !== undefined ? { shell, timer } : null;
    },
    { within: timeoutMs, what: "the timer" },
  );
}

test("the shell of a watchdog is killed, its timer is not: the timer, which has the lock of the run's file, ends with it, and the command lives", async () => {
  const runFile = createRunFile();
  const child = startStubbornChild();
  const watchdog = await startTestWatchdog("4714", { runFile });
  watchdog.watch(child.pid);
  watchdog.setDeadline(40_000);
  const { shell, timer } = await waitForShellAndTimer();
  expect(watchdog.isAlive).toBe(true);
  sendSignal(shell, "SIGKILL");
  await until(() => !isAlive(timer), { within: 15_000, what: "the end of the timer, before its time is over" });
  expect(watchdog.isAlive).toBe(false);
  watchdog.setDeadline(60_000);
  await watchdog.dismiss();
  expect(watchdogProcesses()).toEqual([]);
  expect({ exit: child.exitCode, signal: child.signalCode, text: runFile.text() }).toEqual({
    exit: null,
    signal: null,
    text: "the head\n\n\n",
  });
});

async function waitForShell(): Promise<ProcessId> {
  return await until(() => watchdogProcesses()[0] ?? null, { within: 15_000, what: "the shell" });
}

test("a watchdog that was stopped is continued by a signal for the child, and passes it on", async () => {
  const child = startChild("sleep 60");
  const watchdog = await startTestWatchdog("4715");
  watchdog.watch(child.pid);
  sendSignal(await waitForShell(), "SIGSTOP");
  watchdog.forwardSignal("SIGTERM", () => undefined);
  await until(() => child.signalCode === "SIGTERM", { within: 15_000, what: "the end of the child" });
});

test("a watchdog that was killed a moment before did not pass a signal on: its wrapper must", async () => {
  const child = startStubbornChild();
  const watchdog = await startTestWatchdog("4716");
  watchdog.watch(child.pid);
  sendSignal(await waitForShell(), "SIGKILL");
  // in the same turn: its end is not known yet
  let isLeftToWrapper = false;
  watchdog.forwardSignal("SIGTERM", () => {
    isLeftToWrapper = true;
  });
  await until(() => isLeftToWrapper, { within: 15_000, what: "the request to send it directly" });
});

test("the server ends and another one starts: a new watchdog with a connection to it replaces the old one, and ends the child in time, although its wrapper is stopped", async () => {
  const connections = await openConnections();
  const first = await connections.open();
  const child = startStubbornChild();
  const watchdog = await startTestWatchdog("4713", {
    keepSessionSocket: first.socket,
    reopenKeepSession: connections.open,
  });
  watchdog.watch(child.pid);
  watchdog.setDeadline(4_000);
  const old = await waitForShellAndTimer(3_500);
  connections.closeAll();
  await until(() => !isAlive(old.shell) && !isAlive(old.timer), { within: 3_500, what: "the end of the old watchdog" });
  expect(child.signalCode).toBe(null);
  await until(() => child.signalCode !== null, { within: 15_000, what: "the end of the child" });
  await watchdog.dismiss();
});

/** Keep-session connections to a server that keeps them open until closeAll(). */
async function openConnections(): Promise<{ open(): Promise<KeepSessionSocket>; closeAll(): void }> {
  const path = join(createTemporaryDirectory(), "socket");
  const sockets: Socket[] = [];
  const server = createServer((socket) => void sockets.push(socket)).listen(path);
  await once(server, "listening");
  onCleanup(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return {
    async open() {
      const socket = connect(path);
      await once(socket, "connect");
      onCleanup(() => void socket.destroy());
      return { socket, sessionId: "", runDirectory: null };
    },
    closeAll() {
      for (const socket of sockets.splice(0)) socket.destroy();
    },
  };
}
