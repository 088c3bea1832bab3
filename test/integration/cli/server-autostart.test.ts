import { spawn } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { connect } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import { cliSandbox, isProcessAlive, PROGRAM } from "../../support/cli-sandbox.ts";

const sandbox = cliSandbox();
/** test/fault-injection starts twenty. */
const CONCURRENT_STARTS = 6;

test("the first command starts the server and the next ones share it; its files are accessible to their owner only", async () => {
  expect((await sandbox.run(["run", "k", "--", "true"])).code).toBe(0);
  expect((await sandbox.run(["run", "k", "--", "true"])).code).toBe(0);
  expect(sandbox.autostartedServerPids()).toHaveLength(1);
  expect(statSync(sandbox.directory).mode & 0o777).toBe(0o700);
  for (const name of ["socket", "election", "server.log", "state"]) {
    expect(statSync(join(sandbox.directory, name)).mode & 0o077).toBe(0);
  }
});

test("commands that start at once on a stale socket start one server, and all of them are served", async () => {
  const [old = 0] = sandbox.autostartedServerPids().filter(isProcessAlive);
  process.kill(old, "SIGKILL");
  await until(() => !isProcessAlive(old), { within: 20_000, what: "the end of the old server" });
  expect(existsSync(join(sandbox.directory, "socket"))).toBe(true);
  const before = sandbox.autostartedServerPids().length;
  const counter = join(sandbox.folder, "counter");
  writeFileSync(counter, "0");
  const script = `n=$(cat ${counter}); sleep 0.01; echo $((n+1)) > ${counter}`;
  const runs = await Promise.all(
    Array.from({ length: CONCURRENT_STARTS }, () => sandbox.run(["run", "many", "--quiet", "--", "sh", "-c", script])),
  );
  expect(runs.map(({ code }) => code)).toEqual(Array(CONCURRENT_STARTS).fill(0));
  expect(readFileSync(counter, "utf8").trim()).toBe(String(CONCURRENT_STARTS));
  expect(sandbox.autostartedServerPids()).toHaveLength(before + 1);
});

test("a stopped server counts as running: no command starts another", async () => {
  const [pid = 0] = sandbox.autostartedServerPids().filter(isProcessAlive);
  const before = sandbox.autostartedServerPids().length;
  process.kill(pid, "SIGSTOP");
  const run = sandbox.start(["run", "k", "--", "echo", "ran"]);
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  expect(run.out()).toBe("");
  process.kill(pid, "SIGCONT");
  expect((await run.ended).code).toBe(0);
  expect(sandbox.autostartedServerPids()).toHaveLength(before);
});

test("a server killed with -9 is started again by the next command, and a holder keeps its lock", async () => {
  const stop = join(sandbox.folder, "stop");
  const first = sandbox.start([
    "run",
    "kept",
    "--",
    "sh",
    "-c",
    `echo held; while [ ! -e ${stop} ]; do sleep 0.02; done; echo end`,
  ]);
  await until(() => first.out().includes("held"), { within: 20_000, what: "the holder" });
  const [old = 0] = sandbox.autostartedServerPids().filter(isProcessAlive);
  process.kill(old, "SIGKILL");
  const second = sandbox.start(["run", "kept", "--", "echo", "second"]);
  await until(() => sandbox.autostartedServerPids().some((pid) => pid !== old && isProcessAlive(pid)), {
    within: 20_000,
    what: "another server",
  });
  await sandbox.waitForQueue("kept");
  expect(second.out()).toBe("");
  writeFileSync(stop, "");
  expect((await first.ended).code).toBe(0);
  expect((await second.ended).out).toBe("second\n");
});

test("a server whose socket was removed ends, and the next one serves its clients", async () => {
  const stop = join(sandbox.folder, "stop-removed");
  const first = sandbox.start([
    "run",
    "removed",
    "--",
    "sh",
    "-c",
    `echo held; while [ ! -e ${stop} ]; do sleep 0.02; done`,
  ]);
  await until(() => first.out().includes("held"), { within: 20_000, what: "the holder" });
  const [old = 0] = sandbox.autostartedServerPids().filter(isProcessAlive);
  unlinkSync(join(sandbox.directory, "socket"));
  await until(() => !isProcessAlive(old), { within: 20_000, what: "the end of the server that nobody can reach" });
  expect((await sandbox.run(["run", "removed", "--wait", "300ms", "--", "true"])).code).toBe(124);
  writeFileSync(stop, "");
  expect((await first.ended).code).toBe(0);
});

test("a server that finds another on its path stops granting and ends", async () => {
  const [old = 0] = sandbox.autostartedServerPids().filter(isProcessAlive);
  const other = join(sandbox.folder, "other");
  const otherServer = sandbox.start(["serve", "--listen", `holdfast+unix:${other}`, "--state", "none"]);
  await until(() => existsSync(other), { within: 20_000, what: "the other server" });
  // in one step: with nothing at the path it would end for another reason
  symlinkSync(other, join(sandbox.folder, "link"));
  renameSync(join(sandbox.folder, "link"), join(sandbox.directory, "socket"));
  await until(() => !isProcessAlive(old), { within: 20_000, what: "the end of the first server" });
  expect(readFileSync(join(sandbox.directory, "server.log"), "utf8")).toMatch(
    /stopping: clients can no longer reach this server: .*socket was removed or replaced/,
  );
  otherServer.process.kill("SIGTERM");
  await otherServer.ended;
  rmSync(join(sandbox.directory, "socket"), { force: true });
});

test("the server ends after an idle time, but not while a claim or a client exists", async () => {
  const directory = join(sandbox.folder, "idle");
  const child = spawn(process.execPath, [PROGRAM, "serve", "--on-demand", "--idle", "2s"], {
    env: { PATH: process.env.PATH, HOLDFAST_DIR: directory },
    stdio: ["ignore", "ignore", "pipe", "pipe"],
  });
  let log = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    log += text;
  });
  const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
  await until(() => log.includes("listening"), { within: 20_000, what: "the server" });
  // a detached claim needs no client, but it needs the server: for longer than the idle time
  const locks = await connect(`holdfast+unix:${join(directory, "socket")}`);
  const lock = await locks.acquire("kept", { ttl: "4s" });
  await lock.detach();
  const acquiredAt = performance.now();
  await locks.close();
  expect(await ended).toBe(0);
  expect(performance.now() - acquiredAt).toBeGreaterThan(3_900);
  expect(log).toMatch(/stopping: idle timeout reached/);
});

test.each([
  ["a link", "is a symbolic link", (path: string) => symlinkSync(sandbox.folder, path)],
  ["open to others", "is open to others", (path: string) => chmodSync(createDirectory(path), 0o755)],
  ["a file", "is not a directory", (path: string) => writeFileSync(path, "")],
])("a directory that is %s is refused by client and server, and nothing is started", async (name, message, prepare) => {
  const path = join(sandbox.folder, name);
  prepare(path);
  const env = { HOLDFAST_DIR: path };
  const { code, err, out } = await sandbox.run(["run", "k", "--", "echo", "ran"], { env });
  expect({ code, out }).toEqual({ code: 77, out: "" });
  expect(err).toContain(message);
  expect((await sandbox.run(["serve"], { env })).code).toBe(77);
});

function createDirectory(path: string): string {
  mkdirSync(path);
  return path;
}

test("for a directory path that is too long the error names HOLDFAST_DIR", async () => {
  const env = { HOLDFAST_DIR: join(sandbox.folder, "x".repeat(100)) };
  const { code, err } = await sandbox.run(["run", "k", "--", "true"], { env });
  expect(code).toBe(64);
  expect(err).toMatch(/at most 103 work: set HOLDFAST_DIR to a shorter directory/);
});

test("when the server cannot start, the command that needs it reports why", async () => {
  const directory = join(sandbox.folder, "broken");
  mkdirSync(directory, { mode: 0o700 });
  writeFileSync(join(directory, "state"), "not a folder");
  const { code, err } = await sandbox.run(["run", "k", "--", "true"], { env: { HOLDFAST_DIR: directory } });
  expect(code).toBe(69);
  expect(err).toMatch(/^holdfast: your lock server cannot be used: the lock server could not be started: .*state/);
});

test("the log of the server does not grow without bound", async () => {
  const directory = join(sandbox.folder, "logged");
  mkdirSync(directory, { mode: 0o700 });
  const log = join(directory, "server.log");
  writeFileSync(log, "x".repeat(300_000), { mode: 0o600 });
  const env = { HOLDFAST_DIR: directory };
  expect((await sandbox.run(["run", "k", "--", "true"], { env })).code).toBe(0);
  expect(statSync(log).size).toBeLessThan(2_000);
});
