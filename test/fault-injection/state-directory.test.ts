import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import { until } from "../../src/testing/until.ts";
import { isAlive, sendSignal } from "../../src/torture/processes/process-tree.ts";
import { PROGRAM } from "../support/cli-sandbox.ts";
import {
  fuseUnavailableReason,
  inMountNamespace,
  MOUNT_NAMESPACE_COMMAND,
  mountBindfs,
  startMountNamespace,
} from "../support/processes/mount-namespace.ts";
import type { ProcessHarness, RunningProcess, RunningServer } from "../support/processes/process-harness.ts";
import { IS_LONG_RUN, test, waitUntilListening } from "../support/processes/process-harness.ts";
import { startWorker } from "../support/processes/worker.ts";

/** How long a server without any state recovers before it grants anything. */
const RECOVERY_MS = 60_000;
/** A lease longer than any before must be on disk first, so it shows whether the disk can be written. */
const JOURNALED_LEASE = ["--ttl", "50s"] as const;

/** Kills the server on demand. */
async function killServer(harness: ProcessHarness): Promise<void> {
  const [server] = harness.autostartedServers();
  sendSignal(server!, "SIGKILL");
  await until(() => !isAlive(server!), { within: 5_000, what: "the end of the server" });
}

async function runOnce(harness: ProcessHarness, ...args: readonly string[]): Promise<RunningProcess> {
  const run = harness.start(["run", "once", ...args]);
  await run.ended;
  return run;
}

test.concurrent.for(["state", "journal"])(
  "a damaged %s is refused with the remedy; it is left unchanged, and no command is started",
  async (name, { harness }) => {
    await runOnce(harness, "--", "true");
    await killServer(harness);
    const path = join(harness.directory, "state", name);
    // spaces behind the last line are room for more
    const text = readFileSync(path, "utf8").replace(/.\n *$/, "~\n");
    writeFileSync(path, text);
    for (const attempt of [await runOnce(harness, "--", "touch", "ran"), harness.start(["serve"])]) {
      expect((await attempt.ended).code).toBe(69);
      expect(attempt.err()).toMatch(/damaged.*move it .*away/s);
      expect(attempt.err()).toContain(path);
    }
    expect(readFileSync(path, "utf8")).toBe(text);
    expect(existsSync(harness.path("ran"))).toBe(false);
  },
);

test.concurrent("a missing state file means an unclean start: holders keep their locks, and nothing new is granted until all could reclaim", {
  timeout: RECOVERY_MS + 60_000,
}, async ({ harness }) => {
  const holder = await startWorker(harness);
  holder.acquire("it", "k");
  const { token } = await holder.waitForReport("it", "held");
  // killed while the state file is away: the holder would start the next server at once
  rmSync(join(harness.directory, "state", "state"));
  await killServer(harness);
  await until(() => harness.autostartedServerPids().length === 2, { within: 10_000, what: "the next server" });
  const [same, other] = [await startWorker(harness), await startWorker(harness)];
  same.acquire("same", "k");
  other.acquire("other", "another");
  await delay(IS_LONG_RUN ? RECOVERY_MS / 2 : 2_000);
  expect([...same.reports(), ...other.reports()].filter(({ event }) => event === "held")).toEqual([]);
  holder.send({ do: "release", of: "it" });
  expect(await holder.waitForReport("it", "released")).toMatchObject({ kept: true });
  if (!IS_LONG_RUN) return;
  const next = await same.waitForReport("same", "held", RECOVERY_MS);
  expect(BigInt(next.token!)).toBeGreaterThan(BigInt(token!));
  await other.waitForReport("other", "held", RECOVERY_MS);
});

/** Makes the directory's state file impossible to replace, for root too; returns how to undo it. */
const damageCases: readonly (readonly [string, (folder: string) => () => void])[] = [
  [
    "a directory in its place",
    (folder) => {
      const path = join(folder, "state");
      renameSync(path, `${path}-kept`);
      mkdirSync(join(path, "not-empty"), { recursive: true });
      return () => {
        rmSync(path, { recursive: true });
        renameSync(`${path}-kept`, path);
      };
    },
  ],
  [
    "a folder that not even root may write (chattr +i)",
    (folder) => {
      expect(runShell(`chattr +i "${folder}"`)).toBe(true);
      return () => void runShell(`chattr -i "${folder}"`);
    },
  ],
];

const usable = damageCases.filter(([name]) => !name.includes("chattr") || canSetImmutable());

test.concurrent.for(usable)(
  "when a state cannot be written (%s), a running server refuses calls that need it, gives the reason, serves the others, and recovers",
  {
    timeout: IS_LONG_RUN ? 120_000 : 30_000,
  },
  async ([, damage], { harness }) => {
    const holder = await startWorker(harness);
    holder.acquire("it", "k");
    await holder.waitForReport("it", "held");
    const repair = damage(join(harness.directory, "state"));
    try {
      const refusedRun = await runOnce(harness, ...JOURNALED_LEASE, "--wait", "4s", "--", "touch", "ran");
      expect((await refusedRun.ended).code).toBe(69);
      expect(refusedRun.err()).toMatch(/cannot write its state/);
      expect(existsSync(harness.path("ran"))).toBe(false);
      const plainRun = await runOnce(harness, "--wait", "5s", "--", "true");
      expect((await plainRun.ended).code, plainRun.err()).toBe(0);
      if (IS_LONG_RUN) await refusesAboveTokenCeiling(harness);
    } finally {
      repair();
    }
    const secondRun = await runOnce(harness, ...JOURNALED_LEASE, "--wait", "5s", "--", "true");
    expect((await secondRun.ended).code, secondRun.err()).toBe(0);
    holder.send({ do: "release", of: "it" });
    expect(await holder.waitForReport("it", "released")).toMatchObject({ kept: true });
  },
);

/** The token ceiling is half a minute ahead: after that not even a claim with the default lease is granted. */
async function refusesAboveTokenCeiling(harness: ProcessHarness): Promise<void> {
  await delay(35_000);
  const lateRun = await runOnce(harness, "--wait", "1s", "--", "touch", "ran");
  expect((await lateRun.ended).code).not.toBe(0);
  expect(existsSync(harness.path("ran"))).toBe(false);
}

test.concurrent.for(usable)(
  "when a state cannot be written (%s), no server starts, the reason is printed, and no command is started",
  async ([, damage], { harness }) => {
    await runOnce(harness, "--", "true");
    await killServer(harness);
    const repair = damage(join(harness.directory, "state"));
    try {
      const run = await runOnce(harness, "--", "touch", "ran");
      expect((await run.ended).code).toBe(69);
      expect(run.err()).toMatch(/state/);
      expect(existsSync(harness.path("ran"))).toBe(false);
    } finally {
      repair();
    }
    expect((await (await runOnce(harness, "--wait", "5s", "--", "true")).ended).code).toBe(0);
  },
);

const skipFuse = fuseUnavailableReason();

test.skipIf(skipFuse !== null)(
  `a state directory on a file system in user space is refused through each of two mounts${skipFuse === null ? "" : `: ${skipFuse}, skipped`}`,
  async ({ harness }) => {
    const [data, ...mounts] = ["data", "one", "other"].map((name) => harness.path(name)) as [string, string, string];
    for (const folder of [data, ...mounts]) mkdirSync(folder);
    const namespace = await startMountNamespace(harness, "");
    await mountBindfs(harness, namespace, data, mounts);
    const [program = "", ...prefix] = [...namespace.commandPrefix, process.execPath, PROGRAM, "serve"];
    for (const [index, mount] of mounts.entries()) {
      const args = ["--listen", `holdfast+unix:${harness.path(`s${index}`)}`, "--state", join(mount, "state")];
      for (const check of [["--check"], []]) {
        const server = harness.startProgram([program, ...prefix, ...args, ...check]);
        expect((await server.ended).code, server.err()).not.toBe(0);
        expect(server.err()).toMatch(/is on FUSE or virtiofs, .* name a directory on a local file system/);
      }
    }
  },
);

type FailingDisk = { readonly server: RunningServer; fill(): void; free(): void };

const withFailingDisk = (harness: ProcessHarness): readonly string[] => [
  ...[process.execPath, PROGRAM, "serve", "--listen", `holdfast+unix:${harness.path("socket")}`],
  ...["--state", harness.path("disk/state")],
];

/** The server's state is on a file system of 1 MiB that only it sees. */
async function smallDisk(harness: ProcessHarness): Promise<FailingDisk> {
  const disk = harness.path("disk");
  // the runs' own files are where only the runs see them
  mkdirSync(join(disk, "state", "runs"), { recursive: true, mode: 0o700 });
  const server = await waitUntilListening(
    harness.startProgram(
      inMountNamespace(`mount -t tmpfs -o size=1m,mode=0700 none "${disk}"`, withFailingDisk(harness)),
    ),
  );
  const fillerFile = join(`/proc/${server.pid}/root`, disk, "filler");
  // cat ends when not a byte more fits
  return { server, fill: () => void runShell(`cat /dev/zero >"${fillerFile}"`), free: () => rmSync(fillerFile) };
}

/** Where nothing may be mounted: no file of the server may grow (RLIMIT_FSIZE), which fails its writes in the same way. */
async function limitFileSize(harness: ProcessHarness): Promise<FailingDisk> {
  mkdirSync(harness.path("disk"), { mode: 0o700 });
  const server = await waitUntilListening(
    harness.startProgram(["sh", "-c", `trap "" XFSZ; exec "$@"`, "sh", ...withFailingDisk(harness)]),
  );
  const limit = (bytes: string): void => {
    expect(runShell(`prlimit --pid ${server.pid} --fsize=${bytes}:`)).toBe(true);
  };
  return { server, fill: () => limit("0"), free: () => limit("unlimited") };
}

const disks = [
  {
    name: "tmpfs of 1 MiB",
    said: "cannot write its state (ENOSPC)",
    open: smallDisk,
    runs: MOUNT_NAMESPACE_COMMAND !== null,
  },
  {
    name: "RLIMIT_FSIZE",
    said: "cannot write its state",
    open: limitFileSize,
    runs: MOUNT_NAMESPACE_COMMAND === null || IS_LONG_RUN,
  },
].filter(({ runs }) => runs);

test.concurrent.for(disks)(
  "on a full disk ($name) calls that need it are refused with the reason, no held lock is lost, and grants resume when there is room",
  async ({ said: message, open }, { harness }) => {
    const { server, fill, free } = await open(harness);
    const holder = await startWorker(harness, server.url);
    holder.acquire("it", "k");
    await holder.waitForReport("it", "held");
    fill();
    const refusedRun = await runOnce(
      harness,
      "--url",
      server.url,
      ...JOURNALED_LEASE,
      "--wait",
      "4s",
      "--",
      "touch",
      "ran",
    );
    expect((await refusedRun.ended).code).toBe(69);
    expect(refusedRun.err()).toContain(message);
    // more than there is room for in the journal
    const keys = Array.from({ length: 40 }, (_, index) => `${index} `.padEnd(500, "x"));
    const detached = harness.start(["acquire", ...keys, "--ttl", "2m", "--wait", "1s", "--url", server.url]);
    expect((await detached.ended).code).not.toBe(0);
    expect(detached.out()).toBe("");
    expect(existsSync(harness.path("ran"))).toBe(false);
    free();
    const secondRun = await runOnce(harness, "--url", server.url, ...JOURNALED_LEASE, "--wait", "5s", "--", "true");
    expect((await secondRun.ended).code, secondRun.err()).toBe(0);
    holder.send({ do: "release", of: "it" });
    expect(await holder.waitForReport("it", "released")).toMatchObject({ kept: true });
    expect(await harness.list(server.url)).toEqual([]);
  },
);

test.skipIf(MOUNT_NAMESPACE_COMMAND === null)(
  "on a disk that is full at the start the server refuses to start, and names the file that it cannot write",
  { concurrent: true },
  async ({ harness }) => {
    mkdirSync(harness.path("disk"), { mode: 0o700 });
    const disk = harness.path("disk");
    const full = `mount -t tmpfs -o size=1m,mode=0700 none "${disk}"\nmkdir -m 0700 "${disk}/state"\ncat /dev/zero >"${disk}/filler" || :`;
    const running = harness.startProgram(inMountNamespace(full, withFailingDisk(harness)));
    expect((await running.ended).code).toBe(69);
    expect(running.err()).toMatch(/\/disk\/state\/\w+ cannot be written \(ENOSPC\): .*free disk space/);
    expect(readdirSync(harness.folder)).not.toContain("socket");
  },
);

function canSetImmutable(): boolean {
  const path = `/tmp/hf-chattr-${process.pid}`;
  mkdirSync(path);
  try {
    return runShell(`chattr +i "${path}" && chattr -i "${path}"`);
  } finally {
    rmSync(path, { recursive: true });
  }
}

/** Did it end successfully? */
function runShell(line: string): boolean {
  return spawnSync("sh", ["-c", line], { stdio: "ignore" }).status === 0;
}
