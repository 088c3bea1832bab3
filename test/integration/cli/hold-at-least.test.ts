// `holdfast run --hold-at-least`: the remaining time stays held without the wrapper, as the store itself reports.

import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { createDriver } from "../../../src/client/driver-url.ts";
import type { ClaimView } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { descendants } from "../../../src/torture/processes/process-tree.ts";
import { cliSandbox, isProcessAlive } from "../../support/cli-sandbox.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";

const sandbox = cliSandbox();

/** The server's claims on keys with this beginning, with their leases. */
async function listClaims(prefix: string): Promise<readonly ClaimView[]> {
  const driver = await createDriver(`holdfast+unix:${join(sandbox.directory, "socket")}`);
  await driver.open(NO_EVENTS);
  try {
    return (await driver.list({ prefix }, { max: 10 })).items;
  } finally {
    await driver.close();
  }
}

const remainingMsOf = (view: ClaimView | undefined): number =>
  view?.answer.state === "held" ? view.answer.remainingMs : 0;

/** Is it busy for a command that would wait a moment? */
async function isBusy(key: string, ...flags: readonly string[]): Promise<boolean> {
  const { code } = await sandbox.run(["run", key, ...flags, "-w", "0.3", "--", "true"]);
  expect([0, 124]).toContain(code);
  return code === 124;
}

describe.concurrent("a command that ends before the time is over", () => {
  test("its keys stay held for the remaining time, whatever its exit code is", async () => {
    const { code, err } = await sandbox.run(["run", "b1", "a1", "--hold-at-least", "55s", "--", "sh", "-c", "exit 7"]);
    expect({ code, err }).toEqual({ code: 7, err: "" });
    const [held, ...others] = await listClaims("a1");
    expect(others).toEqual([]);
    expect(held).toMatchObject({ locks: [{ key: "a1" }, { key: "b1" }], answer: { state: "held" } });
    const remainingMs = remainingMsOf(held);
    // counted from the grant; not another full lease
    expect((held?.heldMs ?? 0) + remainingMs).toBeGreaterThanOrEqual(54_900);
    expect(remainingMs).toBeLessThanOrEqual(55_000);
    expect(await Promise.all([isBusy("a1"), isBusy("b1", "--shared")])).toEqual([true, true]);
  });

  test("a waiter is granted when the time is over, and no sooner", async () => {
    const start = performance.now();
    expect((await sandbox.run(["run", "tick", "--hold-at-least", "3s", "--", "true"])).code).toBe(0);
    const { code } = await sandbox.run(["run", "tick", "-n", "--", "true"]);
    // a busy machine may take all of the time to start the two commands
    if (performance.now() - start < 3_000) expect(code).toBe(124);
    expect((await sandbox.run(["run", "tick", "-w", "60", "--", "true"])).code).toBe(0);
    expect(performance.now() - start).toBeGreaterThan(2_990);
  });

  test("shared locks and permits stay held only for claims that do not fit beside them", async () => {
    await sandbox.run(["run", "shared", "-s", "--hold-at-least", "55s", "--", "true"]);
    await sandbox.run(["run", "pool", "--permits", "1/2", "--hold-at-least", "55s", "--", "true"]);
    expect(await isBusy("shared", "-s")).toBe(false);
    expect(await isBusy("shared")).toBe(true);
    expect(await isBusy("pool", "--permits", "1/2")).toBe(false);
    expect(await isBusy("pool", "--permits", "2/2")).toBe(true);
  });

  test("a signal that ends the command does not change this", async () => {
    const run = sandbox.start(["run", "term", "--hold-at-least", "55s", "--", "sh", "-c", "echo up; exec sleep 60"]);
    await until(() => run.out().includes("up"), { within: 20_000, what: "the command" });
    run.process.kill("SIGTERM");
    expect((await run.ended).code).toBe(143);
    expect(await isBusy("term")).toBe(true);
  });

  test("a longer --ttl stays the lease, and the lock is held for the time only", async () => {
    await sandbox.run(["run", "ttl", "--ttl", "2m", "--hold-at-least", "50s", "--max-hold", "1m", "--", "true"]);
    const [held] = await listClaims("ttl");
    expect(held).toMatchObject({ ttlMs: 120_000 });
    expect(remainingMsOf(held)).toBeLessThanOrEqual(50_000);
    expect(remainingMsOf(held)).toBeGreaterThan(30_000);
  });
});

test("after a longer command the lock is free at once", async () => {
  expect((await sandbox.run(["run", "long", "--hold-at-least", "200ms", "--", "sleep", "0.4"])).code).toBe(0);
  expect((await sandbox.run(["run", "long", "-n", "--", "true"])).code).toBe(0);
});

test("a command that could not be started leaves nothing held", async () => {
  const broken = ["run", "broken", "--hold-at-least", "55s", "--", "/dev/null"];
  expect((await sandbox.run(broken)).code).toBe(126);
  expect(await listClaims("broken")).toEqual([]);
});

describe.concurrent("when the wrapper is killed on a Unix socket", () => {
  async function started(key: string, ...flags: readonly string[]) {
    const run = sandbox.start(["run", key, ...flags, "--", "sh", "-c", "echo $$; exec sleep 60"]);
    await until(() => run.out().includes("\n"), { within: 20_000, what: "the command" });
    return run;
  }

  async function heldFor(key: string): Promise<number> {
    const listedClaims = await listClaims(key);
    expect(listedClaims).toMatchObject([{ answer: { state: "held" }, ttlMs: 600_000 }]);
    return remainingMsOf(listedClaims[0]);
  }

  test("the watchdog ends the command, and the lock stays held for the remaining time, no longer", async () => {
    const run = await started("killed", "--ttl", "10m", "--hold-at-least", "5m");
    const command = Number(run.out());
    run.process.kill("SIGKILL");
    await until(() => !isProcessAlive(command), { within: 20_000, what: "the command's end" });
    // until its server has checked, it is a lease of 10 minutes
    await until(async () => (await heldFor("killed")) <= 300_000, { within: 20_000, what: "the shorter lease" });
    expect(await heldFor("killed")).toBeGreaterThan(200_000);
    expect(await isBusy("killed")).toBe(true);
  });

  test("with all of the run's processes, the lock stays held, and is granted when the time is over", async () => {
    const start = performance.now();
    const run = await started("all-killed", "--ttl", "10m", "--hold-at-least", "4s");
    run.process.kill("SIGSTOP");
    // with their groups: the watchdog may start the timer of a new lease after the list was read, and it keeps the run's lock
    for (const { pid } of descendants(run.pid)) for (const target of [-pid, pid]) killIfAlive(target);
    run.process.kill("SIGKILL");
    expect((await sandbox.run(["run", "all-killed", "-w", "60", "--", "true"])).code).toBe(0);
    expect(performance.now() - start).toBeGreaterThan(3_990);
  });
});

/** @param pid negative: the process group that this process leads, if it leads one */
function killIfAlive(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

describe("a server that is killed", () => {
  async function killServer(): Promise<void> {
    const pid = sandbox.autostartedServerPids().find(isProcessAlive) as number;
    process.kill(pid, "SIGKILL");
    await until(() => !isProcessAlive(pid), { within: 20_000, what: "the server's end" });
  }

  test("after the run has ended keeps the remaining time, and no more", async () => {
    await sandbox.run(["run", "after", "--hold-at-least", "55s", "--", "true"]);
    await killServer();
    expect(await isBusy("after")).toBe(true);
    const [held] = await listClaims("after");
    expect(remainingMsOf(held)).toBeLessThanOrEqual(55_000);
  });

  test("while the command is ending is waited for, and keeps the remaining time", async () => {
    const run = sandbox.start(
      ["run", "during", "--hold-at-least", "55s", "--", "sh", "-c", "echo up; read x; exit 3"],
      {},
    );
    await until(() => run.out().includes("up") || run.process.exitCode !== null, {
      within: 20_000,
      what: "the command",
    });
    await killServer();
    expect((await run.ended).code).toBe(3);
    expect(await isBusy("during")).toBe(true);
    expect(await listClaims("during")).toHaveLength(1);
  });
});

test.each<readonly [readonly string[], string]>([
  [["--ttl", "session"], "--hold-at-least needs a lease: --ttl session ends with `holdfast run`"],
  [["--ttl", "9s"], "--ttl must be at least the 10 s of --hold-at-least"],
  [
    ["--max-hold", "9s"],
    "--max-hold must be at least the 10 s of --hold-at-least: the lock is released when it has passed",
  ],
  [
    ["--url", "memory:"],
    "--hold-at-least needs a store that keeps leases: memory: ends with `holdfast run`; nothing was run",
  ],
])("with %j it is refused before the command is started", async (flags, message) => {
  const { code, out, err } = await sandbox.run(["run", "no", ...flags, "--hold-at-least", "10s", "--", "echo", "ran"]);
  expect({ code, out, err }).toEqual({ code: 64, out: "", err: `holdfast: ${message}\n` });
});

test("within a run that holds the key it is refused: the enclosing run releases the key", async () => {
  const inner = `'${process.execPath}' dist/cli/main.js run own outer --hold-at-least 10s -- echo ran`;
  const { code, out, err } = await sandbox.run(["run", "outer", "--", "sh", "-c", inner]);
  expect({ code, out }).toEqual({ code: 64, out: "" });
  expect(err).toContain('--hold-at-least needs a lock of its own, but an outer run holds "outer"');
  expect(await listClaims("own")).toEqual([]);
});
