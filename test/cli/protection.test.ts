import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { until } from "../support/wait-for.ts";
import type { Running } from "./command.ts";
import { isAlive, place } from "./command.ts";

const here = place();
let files = 0;

/** A run whose child says its pid and works until it is ended. */
async function working(key: string, flags: readonly string[], script = "sleep 60") {
  const run = here.start(["run", key, ...flags, "--", "sh", "-c", `echo "pid $$"; ${script}`]);
  await until(() => /pid \d+/.test(run.out()), { within: 20_000, what: `the child of ${key}` });
  return { ...run, child: Number(/pid (\d+)/.exec(run.out())?.[1]) };
}

/** A child that notes TERM and goes on all the same, and notes each round of what it does then. */
function stubborn(): { readonly script: string; heardTerm(): boolean; rounds(): number } {
  const file = join(here.folder, `term-${files++}`);
  return {
    script: `trap 'echo x >> ${file}' TERM; while :; do sleep 0.02; [ ! -e ${file} ] || echo >>${file}-on; done`,
    heardTerm: () => existsSync(file) && readFileSync(file, "utf8") === "x\n",
    rounds: () => (existsSync(`${file}-on`) ? readFileSync(`${file}-on`).length : 0),
  };
}

/** The guard of a wrapper: the shell below it that is not the child. */
function guardOf(wrapper: number): number {
  const children = readFileSync(`/proc/${wrapper}/task/${wrapper}/children`, "latin1").trim().split(" ").map(Number);
  const guard = children.find((pid) => readFileSync(`/proc/${pid}/cmdline`, "latin1").includes("holdfast-guard"));
  if (guard === undefined) throw new Error("the wrapper has no guard");
  return guard;
}

/** Shell text: true while the process lives; one that nobody has reaped does not. */
function isRunning(pid: number): string {
  return `grep -qs '^State:.[^ZX]' /proc/${pid}/status`;
}

function gone(pid: number, within = 20_000): Promise<boolean> {
  return until(() => !isAlive(pid), { within, what: `the end of ${pid}` });
}

/** A lock server on a TCP port of its own. */
async function tcpServer(): Promise<Running & { readonly url: string }> {
  const state = join(here.folder, `tcp-${files++}`);
  const server = here.start(["serve", "--listen", "tcp://127.0.0.1:0", "--state", state]);
  await until(() => server.out().includes("\n"), { within: 20_000, what: "the server's address" });
  return { ...server, url: `holdfast://${/tcp:\/\/(\S+)/.exec(server.out())?.[1]}` };
}

describe.concurrent("when the wrapper is killed with -9", () => {
  test("the child gets TERM, and only when it has ended the next one runs", async () => {
    const first = await working("k1", []);
    const second = here.start([
      "run",
      "k1",
      "--",
      "sh",
      "-c",
      `${isRunning(first.child)} && echo overlap || echo alone`,
    ]);
    await here.waiting("k1");
    first.process.kill("SIGKILL");
    await gone(first.child);
    expect((await second.ended).out).toBe("alone\n");
  });

  test("a child that ignores TERM is killed after the grace, and nothing below it is left", async () => {
    const { script, heardTerm, rounds } = stubborn();
    const first = await working("k2", ["--grace", "2s"], `sleep 61 & echo "below $!"; ${script}`);
    const below = Number(
      (await until(() => /below (\d+)/.exec(first.out()), { within: 20_000, what: "the one below" }))[1],
    );
    first.process.kill("SIGKILL");
    await gone(first.child);
    await gone(below);
    // it says so itself: who looks may come when the grace is over, in which there is time for dozens
    expect(heardTerm()).toBe(true);
    expect(rounds()).toBeGreaterThan(8);
  });

  test("a child without its guard, too, keeps the lock on the socket as long as it lives", async () => {
    const first = await working("k3", []);
    const guard = guardOf(first.pid);
    // stopped, a wrapper cannot notice that its guard is gone
    process.kill(first.pid, "SIGSTOP");
    process.kill(guard, "SIGKILL");
    process.kill(first.pid, "SIGKILL");
    await gone(guard);
    await gone(first.pid);
    expect((await here.run(["run", "k3", "--no-wait", "--", "true"])).code).toBe(124);
    expect(isAlive(first.child)).toBe(true);
    process.kill(-first.child, "SIGKILL");
    await gone(first.child);
    expect((await here.run(["run", "k3", "--wait", "5s", "--", "true"])).code).toBe(0);
  });

  test("on TCP the child has ended before the lease can", async () => {
    const server = await tcpServer();
    const { script } = stubborn();
    const flags = ["--url", server.url, "--ttl", "3s", "--grace", "300ms"];
    const first = await working("k4", flags, script);
    const killedAt = performance.now();
    const second = here.start([
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
    await gone(first.child);
    expect((await second.ended).out).toBe("alone\n");
    // the lease itself ran to its end: a wrapper that was cut off looks the same
    expect(performance.now() - killedAt).toBeGreaterThan(1_500);
    server.process.kill("SIGTERM");
    await server.ended;
  });

  // both fall silent after the guard was armed and before it was told of the child
  test.each([
    ["killed", "SIGKILL"],
    ["stopped", "SIGSTOP"],
  ])("a wrapper %s before its guard knew the child: the guard finds it by its token", async (name, signal) => {
    const script = `
      const { spawn } = await import("node:child_process");
      const { startGuard } = await import(${JSON.stringify(resolve("build/src/cli/guard.js"))});
      const guard = await startGuard({ ownGroup: true, graceMs: 300, token: "4711-${name}", onDeath() {} });
      guard.lease(500);
      const env = { ...process.env, HOLDFAST_TOKEN: "4711-${name}" };
      const child = spawn("sleep", ["67"], { env, detached: true, stdio: "ignore" });
      process.stdout.write("pid " + child.pid + "\\n", () => process.kill(process.pid, ${JSON.stringify(signal)}));`;
    const wrapper = here.program([process.execPath, "--input-type=module", "-e", script]);
    await until(() => wrapper.out().includes("\n"), { within: 20_000, what: "the child" });
    await gone(Number(/pid (\d+)/.exec(wrapper.out())?.[1]));
    wrapper.process.kill("SIGKILL");
    expect((await wrapper.ended).signal).toBe("SIGKILL");
  });

  test("a guard that was killed is replaced", async () => {
    const first = await working("k5", []);
    const guard = guardOf(first.pid);
    process.kill(guard, "SIGKILL");
    await until(() => ![null, guard].includes(guardOfOrNull(first.pid)), {
      within: 20_000,
      what: "another guard",
    });
    first.process.kill("SIGKILL");
    await gone(first.child);
  });
});

function guardOfOrNull(wrapper: number): number | null {
  try {
    return guardOf(wrapper);
  } catch {
    return null;
  }
}

describe.concurrent("when the lock is being lost", () => {
  test("TERM goes out so early that KILL comes before the lease can end, and the exit code is 123", async () => {
    const server = await tcpServer();
    const { script, heardTerm } = stubborn();
    const first = await working("l1", ["--url", server.url, "--ttl", "10s", "--grace", "1s"], script);
    const cutAt = performance.now();
    server.process.kill("SIGSTOP");
    await until(heardTerm, { within: 20_000, what: "TERM" });
    await gone(first.child);
    expect(performance.now() - cutAt).toBeLessThan(10_000);
    const { code, err } = await first.ended;
    expect(code).toBe(123);
    expect(err).toMatch(/^holdfast: losing "l1" \(store unreachable for .*\): sent TERM to \d+; KILL in \d+ m?s$/m);
    expect(isAlive(first.child)).toBe(false);
    server.process.kill("SIGCONT");
    server.process.kill("SIGTERM");
    await server.ended;
  });

  test("with --on-lost kill there is no TERM, with --on-lost ignore the command goes on", async () => {
    const server = await tcpServer();
    const [killed, ignoring] = [stubborn(), stubborn()];
    const flags = ["--url", server.url, "--ttl", "1s"];
    const first = await working("l2", [...flags, "--on-lost", "kill"], killed.script);
    const second = await working("l3", [...flags, "--on-lost", "ignore"], ignoring.script);
    server.process.kill("SIGKILL");
    expect((await first.ended).code).toBe(123);
    expect(killed.heardTerm()).toBe(false);
    await until(() => second.err().includes("goes on without it"), { within: 20_000, what: "the word of it" });
    expect(isAlive(second.child)).toBe(true);
    process.kill(-second.child, "SIGKILL");
    expect((await second.ended).code).toBe(137);
  });

  test("a grace over half of the lease is wrong usage, also where the lease is the default of 30 s", async () => {
    const server = await tcpServer();
    const { code, err } = await here.run(["run", "g", "--url", server.url, "--grace", "16s", "--", "true"]);
    expect(code).toBe(64);
    expect(err).toMatch(/--grace must be at most half of the lease of 30 s/);
    server.process.kill("SIGTERM");
    await server.ended;
  });

  test("a stopped wrapper on TCP: the guard ends the child before the lease can", async () => {
    const server = await tcpServer();
    const { script } = stubborn();
    const first = await working("l4", ["--url", server.url, "--ttl", "10s", "--grace", "500ms"], script);
    const stoppedAt = performance.now();
    process.kill(first.pid, "SIGSTOP");
    await gone(first.child);
    expect(performance.now() - stoppedAt).toBeLessThan(10_000);
    process.kill(first.pid, "SIGCONT");
    expect((await first.ended).code).toBe(123);
    server.process.kill("SIGTERM");
    await server.ended;
  });

  test("a stopped wrapper on the socket loses nothing", async () => {
    const stop = join(here.folder, "stop-l5");
    const first = await working("l5", ["--ttl", "session"], `while [ ! -e ${stop} ]; do sleep 0.02; done; echo end`);
    process.kill(first.pid, "SIGSTOP");
    expect((await here.run(["run", "l5", "--wait", "1s", "--", "true"])).code).toBe(124);
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
      // a shell and the one below it: "heard" is printed once by each
      const inner = `trap 'echo heard; exit 0' ${short}; echo ready; while :; do sleep 0.02; done`;
      const run = await working(`signal-${name}`, [], `trap 'echo heard; exit 7' ${short}; sh -c "${inner}"; sleep 60`);
      await until(() => run.out().includes("ready"), { within: 20_000, what: "the traps" });
      run.process.kill(name);
      const { code, out } = await run.ended;
      expect(code).toBe(7);
      expect(out.match(/heard/g)?.length).toBe(2);
    },
  );
});
