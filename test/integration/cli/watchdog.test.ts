import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { describe, expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import type { RunningCommand } from "../../support/cli-sandbox.ts";
import { cliSandbox, findWatchdog, isProcessAlive } from "../../support/cli-sandbox.ts";

const sandbox = cliSandbox();
let testFiles = 0;

/** A run whose child prints its pid and works until it is ended. */
async function startWorkingRun(key: string, flags: readonly string[], script = "sleep 60") {
  const run = sandbox.start(["run", key, ...flags, "--", "sh", "-c", `echo "pid $$"; ${script}`]);
  await until(() => /pid \d+/.test(run.out()), { within: 20_000, what: `the child of ${key}` });
  return { ...run, child: Number(/pid (\d+)/.exec(run.out())?.[1]) };
}

/** A child that records TERM and continues, and records each later round. */
function stubbornCommand(): { readonly script: string; heardTerm(): boolean; rounds(): number } {
  const file = join(sandbox.folder, `term-${testFiles++}`);
  return {
    script: `trap 'echo x >> ${file}' TERM; while :; do sleep 0.02; [ ! -e ${file} ] || echo >>${file}-on; done`,
    heardTerm: () => existsSync(file) && readFileSync(file, "utf8") === "x\n",
    rounds: () => (existsSync(`${file}-on`) ? readFileSync(`${file}-on`).length : 0),
  };
}

/** Shell text: true while the process lives; a zombie does not count. */
function isRunning(pid: number): string {
  return `grep -qs '^State:.[^ZX]' /proc/${pid}/status`;
}

function waitForExit(pid: number, timeoutMs = 20_000): Promise<boolean> {
  return until(() => !isProcessAlive(pid), { within: timeoutMs, what: `the end of ${pid}` });
}

/** A lock server on a TCP port of its own. */
async function startTcpServer(): Promise<RunningCommand & { readonly url: string }> {
  const state = join(sandbox.folder, `tcp-${testFiles++}`);
  const server = sandbox.start(["serve", "--listen", "holdfast://127.0.0.1:0", "--state", state]);
  await until(() => server.out().includes("\n"), { within: 20_000, what: "the server's address" });
  return { ...server, url: `holdfast://${/holdfast:\/\/(\S+)/.exec(server.out())?.[1]}` };
}

describe.concurrent("a watchdog that was stopped or killed a moment before", () => {
  // `pkill -f "holdfast run"` finds both, the wrapper and its watchdog
  const stops = ["SIGSTOP", "SIGKILL", "SIGTERM"] as const;

  test.each(stops)("passes signals on (%s)", async (name) => {
    const run = await startWorkingRun(`stop-${name}`, []);
    process.kill(findWatchdog(run.pid), name);
    run.process.kill("SIGTERM");
    await waitForExit(run.pid);
    expect((await run.ended).code).toBe(143);
  });

  test.each(stops)("does not delay the end of a run (%s)", async (name) => {
    const { script, heardTerm } = stubbornCommand();
    const run = await startWorkingRun(`end-${name}`, ["--max-hold", "1s", "--grace", "500ms"], script);
    process.kill(findWatchdog(run.pid), name);
    await waitForExit(run.pid);
    expect((await run.ended).code).toBe(122);
    expect(heardTerm()).toBe(true);
  });
});

describe.concurrent("when the wrapper is killed with -9", () => {
  test("the child gets TERM, and the next run starts only after the child has ended", async () => {
    const first = await startWorkingRun("k1", []);
    const second = sandbox.start([
      "run",
      "k1",
      "--",
      "sh",
      "-c",
      `${isRunning(first.child)} && echo overlap || echo alone`,
    ]);
    await sandbox.waitForQueue("k1");
    first.process.kill("SIGKILL");
    await waitForExit(first.child);
    expect((await second.ended).out).toBe("alone\n");
  });

  test("a child that ignores TERM is killed after the grace, with all of its descendants", async () => {
    const { script, heardTerm, rounds } = stubbornCommand();
    const first = await startWorkingRun("k2", ["--grace", "2s"], `sleep 61 & echo "below $!"; ${script}`);
    const grandchildPid = Number(
      (await until(() => /below (\d+)/.exec(first.out()), { within: 20_000, what: "the one below" }))[1],
    );
    first.process.kill("SIGKILL");
    await waitForExit(first.child);
    await waitForExit(grandchildPid);
    // the child itself records it: a check may come after the grace, which has time for dozens of rounds
    expect(heardTerm()).toBe(true);
    expect(rounds()).toBeGreaterThan(8);
  });

  test("a child without its watchdog, too, keeps the lock on the socket as long as it lives", async () => {
    const first = await startWorkingRun("k3", []);
    const watchdog = findWatchdog(first.pid);
    // while stopped, a wrapper cannot notice that its watchdog is gone
    process.kill(first.pid, "SIGSTOP");
    process.kill(watchdog, "SIGKILL");
    process.kill(first.pid, "SIGKILL");
    await waitForExit(watchdog);
    await waitForExit(first.pid);
    expect((await sandbox.run(["run", "k3", "--no-wait", "--", "true"])).code).toBe(124);
    expect(isProcessAlive(first.child)).toBe(true);
    process.kill(-first.child, "SIGKILL");
    await waitForExit(first.child);
    expect((await sandbox.run(["run", "k3", "--wait", "5s", "--", "true"])).code).toBe(0);
  });

  test("on TCP the child ends before the lease can", async () => {
    const server = await startTcpServer();
    const { script } = stubbornCommand();
    const flags = ["--url", server.url, "--ttl", "3s", "--grace", "300ms"];
    const first = await startWorkingRun("k4", flags, script);
    const killedAt = performance.now();
    const second = sandbox.start([
      "run",
      "k4",
      "--url",
      server.url,
      "--",
      "sh",
      "-c",
      `${isRunning(first.child)} && echo overlap || echo alone`,
    ]);
    first.process.kill("SIGKILL");
    await waitForExit(first.child);
    expect((await second.ended).out).toBe("alone\n");
    // the lease itself expired: a wrapper that was disconnected looks the same
    expect(performance.now() - killedAt).toBeGreaterThan(1_500);
    server.process.kill("SIGTERM");
    await server.ended;
  });

  test("a wrapper that was stopped while its command ended, and goes on within the lease, reports how the command ended", async () => {
    const server = await startTcpServer();
    const go = join(sandbox.folder, "go");
    const flags = ["--url", server.url, "--ttl", "10s", "--grace", "4s"];
    const first = await startWorkingRun("k5", flags, `until [ -e ${go} ]; do sleep 0.05; done; exit 7`);
    first.process.kill("SIGSTOP");
    const stoppedAt = performance.now();
    writeFileSync(go, "");
    const isOver = (): boolean => / Z /.test(readFileSync(`/proc/${first.child}/stat`, "latin1"));
    await until(isOver, { within: 20_000, what: "the end of the command" });
    // less of the lease is left than the grace: 9 s by the wrapper's clock, which begin before the command
    await until(() => performance.now() - stoppedAt > 5_200, { within: 10_000, what: "the time for TERM" });
    first.process.kill("SIGCONT");
    expect(await first.ended).toMatchObject({ code: 7, err: "" });
    server.process.kill("SIGTERM");
    await server.ended;
  });

  // both are stopped after the watchdog was armed and before it learned of the child
  test.each([
    ["killed", "SIGKILL"],
    ["stopped", "SIGSTOP"],
  ])("a wrapper %s before its watchdog knew the child: the watchdog finds it by its token", async (name, signal) => {
    const watchdogModule = await bundleWatchdog(name);
    const script = `
      const { spawn } = await import("node:child_process");
      const { startWatchdog } = await import(${JSON.stringify(watchdogModule)});
      const options = { hasOwnGroup: true, graceMs: 300, token: "4711-${name}", keepSessionSocket: null, runFile: null };
      const guard = await startWatchdog(options);
      guard.setDeadline(500);
      const env = { ...process.env, HOLDFAST_TOKEN: "4711-${name}" };
      const child = spawn("sleep", ["67"], { env, detached: true, stdio: "ignore" });
      process.stdout.write("pid " + child.pid + "\\n", () => process.kill(process.pid, ${JSON.stringify(signal)}));`;
    const wrapper = sandbox.startProgram([process.execPath, "--input-type=module", "-e", script]);
    await until(() => wrapper.out().includes("\n"), { within: 20_000, what: "the child" });
    await waitForExit(Number(/pid (\d+)/.exec(wrapper.out())?.[1]));
    wrapper.process.kill("SIGKILL");
    expect((await wrapper.ended).signal).toBe("SIGKILL");
  });

  test("a watchdog that was killed is not replaced: signals still reach the command, and its exit code is that of the run", async () => {
    const first = await startWorkingRun("k5", [], "trap 'exit 7' TERM; while :; do sleep 0.02; done");
    const watchdog = findWatchdog(first.pid);
    process.kill(watchdog, "SIGKILL");
    // reaped by the wrapper: then the wrapper knows that it is dead
    await until(() => !existsSync(`/proc/${watchdog}`), { within: 20_000, what: "the end of the watchdog" });
    first.process.kill("SIGTERM");
    expect((await first.ended).code).toBe(7);
  });
});

/** Compiles the watchdog's module from src for a program that is killed in the middle of its work. */
async function bundleWatchdog(name: string): Promise<string> {
  const outfile = join(sandbox.folder, `watchdog-${name}.mjs`);
  const loader = { ".sh": "text" } as const;
  const entryPoints = ["src/cli/commands/run/watchdog.ts"];
  await build({ entryPoints, outfile, loader, bundle: true, format: "esm", platform: "node", target: "node20" });
  return outfile;
}

describe.concurrent("when the lock is being lost", () => {
  test("TERM is sent so early that KILL comes before the lease can end, and the exit code is 123", async () => {
    const server = await startTcpServer();
    const { script, heardTerm } = stubbornCommand();
    const first = await startWorkingRun("l1", ["--url", server.url, "--ttl", "10s", "--grace", "1s"], script);
    const cutAt = performance.now();
    server.process.kill("SIGSTOP");
    await until(heardTerm, { within: 20_000, what: "TERM" });
    await waitForExit(first.child);
    expect(performance.now() - cutAt).toBeLessThan(10_000);
    const { code, err } = await first.ended;
    expect(code).toBe(123);
    expect(err).toMatch(/^holdfast: losing "l1" \(store unreachable for .*\): sent TERM to \d+; KILL in \d+ m?s$/m);
    expect(isProcessAlive(first.child)).toBe(false);
    server.process.kill("SIGCONT");
    server.process.kill("SIGTERM");
    await server.ended;
  });

  test("with --on-lost kill there is no TERM, with --on-lost ignore the command continues", async () => {
    const server = await startTcpServer();
    const [killed, ignoring] = [stubbornCommand(), stubbornCommand()];
    const flags = ["--url", server.url, "--ttl", "1s"];
    const first = await startWorkingRun("l2", [...flags, "--on-lost", "kill"], killed.script);
    const second = await startWorkingRun("l3", [...flags, "--on-lost", "ignore"], ignoring.script);
    server.process.kill("SIGKILL");
    expect((await first.ended).code).toBe(123);
    expect(killed.heardTerm()).toBe(false);
    await until(() => second.err().includes("continues without the lock"), { within: 20_000, what: "the word of it" });
    expect(isProcessAlive(second.child)).toBe(true);
    process.kill(-second.child, "SIGKILL");
    expect((await second.ended).code).toBe(137);
  });

  test("a grace over half of the lease is wrong usage, also with the default lease of 30 s", async () => {
    const server = await startTcpServer();
    const { code, err } = await sandbox.run(["run", "g", "--url", server.url, "--grace", "16s", "--", "true"]);
    expect(code).toBe(64);
    expect(err).toMatch(/--grace must be at most half of the lease of 30 s/);
    server.process.kill("SIGTERM");
    await server.ended;
  });

  test("a stopped wrapper on TCP: the watchdog ends the child before the lease can end", async () => {
    const server = await startTcpServer();
    const { script } = stubbornCommand();
    const first = await startWorkingRun("l4", ["--url", server.url, "--ttl", "10s", "--grace", "500ms"], script);
    const stoppedAt = performance.now();
    process.kill(first.pid, "SIGSTOP");
    await waitForExit(first.child);
    expect(performance.now() - stoppedAt).toBeLessThan(10_000);
    process.kill(first.pid, "SIGCONT");
    expect((await first.ended).code).toBe(123);
    server.process.kill("SIGTERM");
    await server.ended;
  });

  test("a stopped wrapper on the socket loses nothing", async () => {
    const stop = join(sandbox.folder, "stop-l5");
    const first = await startWorkingRun(
      "l5",
      ["--ttl", "session"],
      `while [ ! -e ${stop} ]; do sleep 0.02; done; echo end`,
    );
    process.kill(first.pid, "SIGSTOP");
    expect((await sandbox.run(["run", "l5", "--wait", "1s", "--", "true"])).code).toBe(124);
    process.kill(first.pid, "SIGCONT");
    writeFileSync(stop, "");
    const { code, out } = await first.ended;
    expect({ code, ended: out.endsWith("end\n") }).toEqual({ code: 0, ended: true });
  });
});

describe("signals without a terminal", () => {
  test.each(["SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2"] as const)(
    "%s is passed on, once, to the child's group",
    async (name) => {
      const short = name.slice(3);
      // a shell and the one below it: each prints "heard" once
      const inner = `trap 'echo heard; exit 0' ${short}; echo ready; while :; do sleep 0.02; done`;
      const run = await startWorkingRun(
        `signal-${name}`,
        [],
        `trap 'echo heard; exit 7' ${short}; sh -c "${inner}"; sleep 60`,
      );
      await until(() => run.out().includes("ready"), { within: 20_000, what: "the traps" });
      run.process.kill(name);
      const { code, out } = await run.ended;
      expect(code).toBe(7);
      expect(out.match(/heard/g)?.length).toBe(2);
    },
  );
});
