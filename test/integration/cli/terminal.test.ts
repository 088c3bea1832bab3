/** Differences when a terminal controls the run: script(1) creates one. */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { cliSandbox, isProcessAlive, PROGRAM } from "../../support/cli-sandbox.ts";

const sandbox = cliSandbox();
const holdfast = `${process.execPath} ${PROGRAM}`;
const hasScript = existsSync("/usr/bin/script") && process.platform === "linux";

const typescripts = new Set<ChildProcess>();
// closing a terminal ends the processes it controls, also after a failed test
afterEach(() => {
  for (const screen of typescripts) screen.kill("SIGKILL");
  typescripts.clear();
});

/** A command in a terminal of its own; `type` presses keys. */
function startInTerminal(command: string) {
  const env = { PATH: process.env.PATH, HOLDFAST_DIR: sandbox.directory, TERM: "dumb", PS1: "$ ", HISTFILE: "" };
  const child = spawn("script", ["-qefc", command, "/dev/null"], { env, stdio: ["pipe", "pipe", "inherit"] });
  let screenText = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    screenText += text;
  });
  const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
  typescripts.add(child);
  return {
    shown: () => screenText,
    type: (keys: string) => child.stdin.write(keys),
    ended,
    sees: (text: string | RegExp) =>
      until(() => screenText.match(text), { within: 20_000, what: `${text} on the terminal` }).catch((error: Error) => {
        throw new Error(`${error.message}; it shows: ${screenText}`);
      }),
    end() {
      child.stdin.end();
      child.kill("SIGHUP");
      return ended;
    },
  };
}

describe.runIf(hasScript)("in a terminal", () => {
  test("Ctrl-C reaches the child once, nothing outlives the run, and the calling shell sees the signal", async () => {
    const script = `trap 'n=$((n+1))' INT; n=0; echo "pid $$"; while [ $n = 0 ]; do sleep 0.02; done; sleep 0.3; echo "heard $n"; trap - INT; kill -INT $$`;
    const screen = startInTerminal(`${holdfast} run c -- sh -c '${script.replaceAll("'", `'\\''`)}'`);
    await screen.sees(/pid \d+/);
    screen.type("\u0003");
    await screen.sees(/heard 1/);
    expect(await screen.ended).toBe(130);
    expect(isProcessAlive(Number(/pid (\d+)/.exec(screen.shown())?.[1]))).toBe(false);
    expect((await sandbox.run(["run", "c", "--no-wait", "--", "true"])).code).toBe(0);
  });

  test("Ctrl-C ends a plain command and frees the lock", async () => {
    // one process: a shell that is interrupted as it forks may leave its child behind, and with it the terminal
    const program = 'console.log("pid", process.pid); setTimeout(() => console.log("after"), 63_000)';
    const screen = startInTerminal(`${holdfast} run plain -- node -e '${program}'`);
    await screen.sees(/pid \d+/);
    screen.type("\u0003");
    expect(await screen.ended).toBe(130);
    expect(screen.shown()).not.toContain("after");
    expect((await sandbox.run(["run", "plain", "--no-wait", "--", "true"])).code).toBe(0);
  });

  test("Ctrl-C ends a command, and --hold-at-least still keeps its lock", async () => {
    const screen = startInTerminal(`${holdfast} run tick --hold-at-least 55s -- sh -c 'echo pid $$; exec sleep 63'`);
    await screen.sees(/pid \d+/);
    screen.type("\u0003");
    expect(await screen.ended).toBe(130);
    expect((await sandbox.run(["run", "tick", "--no-wait", "--", "true"])).code).toBe(124);
  });

  test("Ctrl-C ends a wait and leaves no queue entry", async () => {
    const first = sandbox.start(["run", "wait", "--", "sh", "-c", "echo held; sleep 60"]);
    await until(() => first.out().includes("held"), { within: 20_000, what: "the holder" });
    const screen = startInTerminal(`${holdfast} run wait -- echo never`);
    await sandbox.waitForQueue("wait");
    screen.type("\u0003");
    expect(await screen.ended).toBe(130);
    expect(screen.shown()).not.toContain("never");
    await sandbox.waitForQueue("wait", 0);
    first.process.kill("SIGTERM");
    await first.ended;
  });

  test("the child can use the terminal: it stays in the wrapper's process group", async () => {
    const screen = startInTerminal(
      `${holdfast} run tty -- sh -c 'read answer </dev/tty; echo "answer: $answer" >/dev/tty'`,
    );
    await sandbox.run(["ls"]);
    screen.type("forty-two\n");
    await screen.sees("answer: forty-two");
    expect(await screen.ended).toBe(0);
  });

  test("Ctrl-Z and fg lose nothing", async () => {
    // a shell that waits for a program it has just started shows as waiting, not as stopped: it only reads here
    const goFile = join(sandbox.folder, "go");
    expect((await sandbox.startProgram(["mkfifo", goFile]).ended).code).toBe(0);
    const screen = startInTerminal("bash --norc --noprofile -i");
    screen.type(`${holdfast} run z -- sh -c 'echo "pid $$"; read line < ${goFile}; echo "fini""shed"'\n`);
    await screen.sees(/pid \d+/);
    const child = Number(/pid (\d+)/.exec(screen.shown())?.[1]);
    screen.type("\u001a");
    await screen.sees(/Stopped/);
    const state = (): string => /^State:\s+(\w)/m.exec(readFileSync(`/proc/${child}/status`, "latin1"))?.[1] ?? "";
    await until(() => state() === "T", { within: 20_000, what: "the child to be stopped" });
    expect((await sandbox.run(["run", "z", "--wait", "700ms", "--quiet", "--", "true"])).code).toBe(124);
    screen.type("fg\n");
    await until(() => state() !== "T", { within: 20_000, what: "the child to go on" });
    await sandbox.startProgram(["sh", "-c", `echo > ${goFile}`]).ended;
    await screen.sees("finished");
    screen.type("echo code=$?\nexit\n");
    await screen.sees("code=0");
    await screen.ended;
  });

  test("a wrapper killed with -9: the child is ended, the rest of its pipeline is not", async () => {
    const screen = startInTerminal(
      `sh -c 'sh -c "echo left \\$\\$; exec sleep 64" | ${holdfast} run pipe -- sh -c "cat; echo wrapper \\$PPID child \\$\\$; sleep 65"'`,
    );
    // the left side's line passes cat only at its end, so it is found by its own output on the terminal
    const held = async () => /held.* pid (\d+)/.exec((await sandbox.run(["ls", "pipe"])).out);
    const wrapper = Number((await until(held, { within: 20_000, what: "the run" }))[1]);
    // it holds the lock before it starts anything
    const child = await until(() => childPids(wrapper).find((pid) => commandLine(pid).startsWith("sh\0-c\0cat")), {
      within: 20_000,
      what: "the child",
    });
    const sleepPid = await until(
      () => childPids(parentPid(wrapper)).find((pid) => commandLine(pid).includes("sleep")),
      {
        within: 20_000,
        what: "the left side",
      },
    );
    process.kill(wrapper, "SIGKILL");
    await until(() => !isProcessAlive(child), { within: 20_000, what: "the end of the child" });
    expect(isProcessAlive(sleepPid)).toBe(true);
    process.kill(sleepPid, "SIGKILL");
    await screen.end();
  });

  test("TERM to the wrapper is passed on to the child and its descendants", async () => {
    const screen = startInTerminal(
      `${holdfast} run term -- sh -c 'echo "wrapper $PPID child $$"; sleep 66; echo after'`,
    );
    await screen.sees(/wrapper \d+/);
    const [, wrapper, child] = (/wrapper (\d+) child (\d+)/.exec(screen.shown()) ?? []).map(Number);
    const grandchildPid = await until(() => childPids(child ?? 0)[0], { within: 20_000, what: "what is below" });
    process.kill(wrapper ?? 0, "SIGTERM");
    expect(await screen.ended).toBe(143);
    await until(() => !isProcessAlive(grandchildPid), { within: 20_000, what: "the end of what is below" });
  });
});

function childPids(pid: number): number[] {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, "latin1").trim().split(" ").filter(Boolean).map(Number);
}

function commandLine(pid: number): string {
  return readFileSync(`/proc/${pid}/cmdline`, "latin1");
}

function parentPid(pid: number): number {
  return Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "latin1"))?.[1]);
}
