import { chmodSync, existsSync, lstatSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { userInfo } from "node:os";
import { resolve } from "node:path";
import { expect } from "vitest";
import { until } from "../../src/testing/until.ts";
import { isAlive, sendSignal } from "../../src/torture/processes/process-tree.ts";
import { PROGRAM } from "../support/cli-sandbox.ts";
import { GATED_COMMAND, openGate } from "../support/processes/child-scripts.ts";
import { createCounterWorkload } from "../support/processes/counter-workload.ts";
import { inMountNamespace, MOUNT_NAMESPACE_COMMAND } from "../support/processes/mount-namespace.ts";
import type { ProcessHarness, RunningProcess } from "../support/processes/process-harness.ts";
import { test } from "../support/processes/process-harness.ts";

const CONCURRENT_STARTS = 20;

test(`${CONCURRENT_STARTS} wrappers started at once on a stale socket file start one server, and none of them overlap`, {
  timeout: 60_000,
}, async ({ harness }) => {
  const first = harness.start(["run", "k", "--", "true"]);
  expect((await first.ended).code, first.err()).toBe(0);
  const [old] = harness.autostartedServers();
  sendSignal(old!, "SIGKILL");
  await until(() => !isAlive(old!), { within: 5_000, what: "the end of the first server" });
  expect(lstatSync(`${harness.directory}/socket`).isSocket()).toBe(true);

  const count = createCounterWorkload(harness.folder);
  const startedAt = performance.now();
  const runs = Array.from({ length: CONCURRENT_STARTS }, () => harness.start(["run", "k", "--", ...count.command(0)]));
  for (const run of runs) expect(await run.ended, run.err()).toEqual({ code: 0, signal: null });
  expect(harness.autostartedServerPids()).toHaveLength(2);
  await until(() => harness.autostartedServers().length === 1, {
    within: 5_000,
    what: "the end of those that lost the election",
  });
  expect(count.history()).toMatchObject({ faults: [], counter: CONCURRENT_STARTS });
  console.log(
    `figure: ${CONCURRENT_STARTS} wrappers at once on a stale socket: one server, all served after ${((performance.now() - startedAt) / 1_000).toFixed(1)} s`,
  );
});

test.concurrent("out=$(holdfast run k -- echo hi) returns at once although it started the server, which keeps no descriptor of its starter", async ({
  harness,
}) => {
  const startedAt = performance.now();
  const shell = harness.startProgram([
    // above 15, where Node does not close inherited descriptors by itself
    "bash",
    "-c",
    `out=$("${process.execPath}" "${PROGRAM}" run k -- echo hi 20>&1 2>&1); echo "got $out"`,
  ]);
  expect((await shell.ended).code).toBe(0);
  await until(() => shell.out() === "got hi\n", { within: 5_000, what: "its output" });
  // a server that kept the descriptor would block for ten minutes
  expect(performance.now() - startedAt).toBeLessThan(30_000);
  const [server] = harness.autostartedServers();
  expect(server).toBeDefined();
  console.log(
    `figure: out=$(holdfast run k -- echo hi) with the start of the server took ${(performance.now() - startedAt).toFixed(0)} ms`,
  );
});

/** The test's directory as the user's home, in a password file that only the namespace sees. */
function startWithHome(
  harness: ProcessHarness,
  home: string,
  command: readonly string[],
  setUp = "",
): readonly [string, ...string[]] {
  const { uid, gid } = MOUNT_NAMESPACE_COMMAND?.includes("-rm") === true ? { uid: 0, gid: 0 } : userInfo();
  writeFileSync(harness.path("passwd"), `somebody:x:${uid}:${gid}:somebody:${home}:/bin/sh\n`);
  return inMountNamespace(`mount --bind "${harness.path("passwd")}" /etc/passwd\n${setUp}`, command);
}

const NO_DIRECTORY = { env: { HOLDFAST_DIR: undefined } };
const RUN = [process.execPath, PROGRAM, "run", "k"] as const;

test.skipIf(MOUNT_NAMESPACE_COMMAND === null)(
  "a run with an empty environment (env -i) and one from a login shell exclude each other: same user, same server",
  { concurrent: true },
  async ({ harness }) => {
    const home = harness.path("home");
    mkdirSync(home, { mode: 0o700 });
    const login = [
      ...[
        "env",
        "-i",
        `HOME=${harness.path("elsewhere")}`,
        `TMPDIR=${harness.folder}`,
        `XDG_RUNTIME_DIR=${harness.folder}`,
        "LANG=C.UTF-8",
      ],
      ...["PATH=/usr/local/bin:/usr/bin:/bin", "sh", "-l", "-c", `"$@"`, "sh", ...RUN],
    ];
    const holder = harness.startProgram(startWithHome(harness, home, [...login, "--", ...GATED_COMMAND]), NO_DIRECTORY);
    await until(() => holder.out() !== "" || holder.hasEnded(), { within: 10_000, what: "the holder" });
    expect(holder.hasEnded(), holder.err()).toBe(false);

    const empty = (...args: readonly string[]): RunningProcess =>
      harness.startProgram(startWithHome(harness, home, ["env", "-i", ...RUN, ...args]), NO_DIRECTORY);
    const busyRun = empty("--no-wait", "--", "/bin/echo", "entered");
    expect((await busyRun.ended).code, busyRun.err()).toBe(124);
    expect(busyRun.out()).toBe("");
    openGate(harness);
    expect(await holder.ended).toEqual({ code: 0, signal: null });
    const freeRun = empty("--wait", "5s", "--", "/bin/echo", "entered");
    expect((await freeRun.ended).code, freeRun.err()).toBe(0);
    // one server, in the directory given by the password database
    expect(harness.autostartedServers()).toHaveLength(1);
    expect(existsSync(`${home}/.holdfast`)).toBe(true);
    expect(existsSync(harness.path("elsewhere"))).toBe(false);
  },
);

const refusals: readonly (readonly [string, (path: string) => void, RegExp])[] = [
  ["a link to the user's own directory", symlinkDirectory, /symbolic link/],
  ["a link to nowhere", (path) => symlinkSync(`${path}-nowhere`, path), /symbolic link/],
  ["open to others", makeWorldAccessible, /open to others/],
  ["a file", (path) => writeFileSync(path, ""), /not a directory/],
];

function symlinkDirectory(path: string): void {
  mkdirSync(`${path}-real`, { mode: 0o700 });
  symlinkSync(`${path}-real`, path);
}

function makeWorldAccessible(path: string): void {
  mkdirSync(path);
  chmodSync(path, 0o755);
}

test.concurrent.for(refusals)(
  "a user directory that is %s is refused by client and server, and nothing is started",
  async ([, prepare, reason], { harness }) => {
    prepare(harness.directory);
    const run = harness.start(["run", "k", "--", "touch", "ran"]);
    expect((await run.ended).code).toBe(77);
    expect(run.err()).toMatch(reason);
    const server = harness.start(["serve"]);
    expect((await server.ended).code).not.toBe(0);
    expect(server.err()).toMatch(reason);
    expect(existsSync(harness.path("ran"))).toBe(false);
  },
);

test.skipIf(process.getuid?.() !== 0)(
  "a user directory of another user is refused, and nothing is started",
  { concurrent: true },
  async ({ harness }) => {
    mkdirSync(harness.directory, { mode: 0o700 });
    expect((await harness.startProgram(["chown", "65534", harness.directory]).ended).code).toBe(0);
    const run = harness.start(["run", "k", "--", "touch", "ran"]);
    expect((await run.ended).code).toBe(77);
    expect(run.err()).toMatch(/belongs to the user with id 65534/);
    expect(existsSync(harness.path("ran"))).toBe(false);
  },
);

test.skipIf(MOUNT_NAMESPACE_COMMAND === null)(
  "a directory in /tmp that another user created before a user without a home is refused, and nothing is started",
  { concurrent: true },
  async ({ harness }) => {
    // the program may itself be in /tmp, which is hidden here
    const mountCommands = `mount --bind "${resolve(".")}" /mnt\nmount -t tmpfs none /tmp\nmkdir -m 0777 "/tmp/holdfast-$(id -u)"\ncd /`;
    const command = [process.execPath, "/mnt/dist/cli/main.js", "run", "k", "--", "echo", "entered"];
    // nor the modules that the test runner may preload from there
    const env = { ...NO_DIRECTORY.env, NODE_OPTIONS: undefined };
    const run = harness.startProgram(startWithHome(harness, "/nonexistent", command, mountCommands), { env });
    expect((await run.ended).code, run.err()).toBe(77);
    expect(run.err()).toMatch(/\/tmp\/holdfast-\d+ is open to others/);
    expect(run.out()).toBe("");
  },
);
