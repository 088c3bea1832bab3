import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { expect, onTestFinished, test } from "vitest";
import {
  signalNestedRuns,
  waitForNestedRuns,
  watchdogEnvironment,
  withProcessId,
} from "../../../../../src/cli/commands/run/nested-runs.ts";
import { probeProcess, readStartTime } from "../../../../../src/os/process-info.ts";
import { until } from "../../../../../src/testing/until.ts";
import { publicTag } from "../../../../../src/util/ids.ts";

const REFERENCE = "hf1.outer";

/** A shell in place of a wrapper, and below it a process in place of its watchdog, which the launcher starts. */
async function startPair(launcher = "setsid"): Promise<{ readonly wrapper: ChildProcess; readonly watchdog: number }> {
  const start = "$(cut -d' ' -f22 /proc/$$/stat)";
  const script = `HOLDFAST_NESTED_RUN="watchdog ${start} other $1" ${launcher} sleep 60 >/dev/null & echo $!; wait`;
  const wrapper = spawn("sh", ["-c", script, "sh", publicTag(REFERENCE)], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = (await once(wrapper.stdout as NonNullable<typeof wrapper.stdout>, "data")) as [Buffer];
  const watchdog = Number(line);
  onTestFinished(() => {
    wrapper.kill("SIGKILL");
    if (readStartTime(watchdog) !== null) process.kill(watchdog, "SIGKILL");
  });
  const isStarted = (): boolean => readFileSync(`/proc/${watchdog}/comm`, "latin1") === "sleep\n";
  await until(isStarted, { within: 10_000, what: "the watchdog" });
  return { wrapper, watchdog };
}

async function kill(wrapper: ChildProcess): Promise<void> {
  wrapper.kill("SIGKILL");
  await once(wrapper, "exit");
}

/** Whether the run with that reference would wait; if so, the wait ends with the watchdog. */
async function isWaitedFor(watchdog: number, reference: string): Promise<boolean> {
  const start = readStartTime(watchdog) as string;
  let isWaiting = false;
  await waitForNestedRuns(reference, () => {
    isWaiting = true;
    setTimeout(() => process.kill(watchdog, "SIGKILL"), 100);
  });
  if (isWaiting) expect(probeProcess(watchdog, start), "the watchdog has ended").toBe("gone");
  return isWaiting;
}

test("a watchdog whose wrapper was killed keeps each run around it, until it ends", async () => {
  const { wrapper, watchdog } = await startPair();
  await kill(wrapper);
  expect(await isWaitedFor(watchdog, "hf1.unrelated")).toBe(false);
  expect(await isWaitedFor(watchdog, REFERENCE)).toBe(true);
});

test("a watchdog with its wrapper keeps no outer run: the command has left this run in the background", async () => {
  const { watchdog } = await startPair();
  expect(await isWaitedFor(watchdog, REFERENCE)).toBe(false);
});

test("nor does a stopped watchdog, which ends nothing", async () => {
  const { wrapper, watchdog } = await startPair();
  await kill(wrapper);
  process.kill(watchdog, "SIGSTOP");
  const isStopped = (): boolean => / T /.test(readFileSync(`/proc/${watchdog}/stat`, "latin1"));
  await until(isStopped, { within: 10_000, what: "the stop" });
  expect(await isWaitedFor(watchdog, REFERENCE)).toBe(false);
});

test("nor does the timer of a watchdog, which has the same environment", async () => {
  const { wrapper, watchdog } = await startPair("");
  await kill(wrapper);
  expect(await isWaitedFor(watchdog, REFERENCE)).toBe(false);
});

test.each(["SIGKILL", "SIGSTOP"] as const)(
  "a command whose wrapper and watchdog got %s keeps each run around it, until it ends, and gets its signals",
  async (name) => {
    const { wrapper, watchdog } = await startPair();
    const [program, ...args] = withProcessId(["sh", "-c", "sleep 60 & echo background $!; wait"], {
      HOLDFAST_REFERENCE: REFERENCE,
    });
    const start = readStartTime("self") as string;
    const launcher = `${[program, ...args].map((word) => `'${word}'`).join(" ")} & echo a command $!`.replaceAll(
      start,
      "0",
    );
    const shell = spawn("sh", ["-c", launcher], { stdio: ["ignore", "pipe", "inherit"] });
    const lines: string[] = [];
    shell.stdout.on("data", (chunk: Buffer) => lines.push(...chunk.toString().trim().split("\n")));
    await until(() => lines.length === 2, { within: 10_000, what: "the command" });
    process.kill(watchdog, name);
    await kill(wrapper);
    // in either order
    const pids = lines.sort().map((line) => Number(line.split(" ").at(-1)));
    const processes = pids.map((pid) => ({ pid, start: readStartTime(pid) as string }));
    onTestFinished(() => {
      for (const { pid } of processes) if (readStartTime(pid) !== null) process.kill(pid, "SIGKILL");
    });
    let isWaiting = false;
    await waitForNestedRuns(REFERENCE, () => {
      isWaiting = true;
      setTimeout(() => signalNestedRuns(REFERENCE, "SIGTERM"), 100);
    });
    expect(isWaiting).toBe(true);
    // what the command left in the background keeps nothing
    expect(processes.map(({ pid, start }) => probeProcess(pid, start))).toEqual(["gone", "running"]);
  },
);

test("a watchdog has the tags of all runs around it, never their references", () => {
  const env = { HOLDFAST_REFERENCE: REFERENCE, HOLDFAST_ANCESTORS: "hf1.a hf1.b" };
  const tags = [REFERENCE, "hf1.a", "hf1.b"].map(publicTag);
  expect(watchdogEnvironment(env)).toEqual({
    HOLDFAST_NESTED_RUN: ["watchdog", readStartTime("self"), ...tags].join(" "),
  });
  expect(watchdogEnvironment({})).toEqual({});
});
