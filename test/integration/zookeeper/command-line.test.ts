// The command line on ZooKeeper: all entries of a path are listed, also foreign ones, and no command runs without its lock.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { listChildren } from "../../../src/drivers/zookeeper/client/helpers.ts";
import { until } from "../../../src/testing/until.ts";
import { cliSandbox } from "../../support/cli-sandbox.ts";
import { zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";

const sandbox = cliSandbox();
const fixture = zookeeperFixture();
const TIMEOUT_MS = 40_000;
/** A busy machine may use a part of it to do what is due. */
const SESSION_MS = 8_000;
const CURATOR = "_c_9f0c2a55-8f86-4a0c-9d8d-5f1f3c1c0a11-";

const zookeeperUrl = (suffix = ""): string =>
  `zookeeper://${fixture.server.address.host}:${fixture.server.address.port}${suffix}`;

/** A node as other programs create it. */
async function createForeignNode(folder: string, kind: string, text: string): Promise<void> {
  await fixture.observer.create(folder);
  await fixture.observer.create(`${folder}/${CURATOR}${kind}`, {
    mode: "ephemeralSequential",
    data: Buffer.from(text),
  });
}

test("ls and show list foreign entries, and a run waits for them or is refused, with their name but not their id", async () => {
  await createForeignNode("/shown-mutex", "lock-", "10.0.0.7");
  await createForeignNode("/shown-rw", "__WRIT__", "\u001b[2Jforged");
  await createForeignNode("/shown-latch", "latch-", "x");
  const env = { HOLDFAST_URL: zookeeperUrl() };
  const listResult = await sandbox.run(["ls", "/shown"], { env });
  expect(listResult.out).toMatch(/^\/shown-mutex +held .* \(not Holdfast\) 10\.0\.0\.7$/m);
  expect(listResult.out).toMatch(/^\/shown-rw +held .* \(not Holdfast, family readWrite\)$/m);
  const showResult = await sandbox.run(["show", "/shown-mutex"], { env });
  expect(showResult.out).toContain("held by (not Holdfast) 10.0.0.7 for");
  const busyRun = await sandbox.run(["run", "/shown-mutex", "--no-wait", "--", "true"], { env });
  expect([busyRun.code, busyRun.err]).toEqual([
    124,
    expect.stringContaining('"/shown-mutex" is busy: held by (not Holdfast) 10.0.0.7'),
  ]);
  const refusedRun = await sandbox.run(["run", "/shown-latch", "--", "true"], { env });
  expect([refusedRun.code, refusedRun.err]).toEqual([
    77,
    expect.stringContaining("latch-0000000000, which is not a mutex node"),
  ]);
  for (const { out, err } of [listResult, showResult, busyRun, refusedRun]) {
    expect(out + err).not.toContain("9f0c2a55");
    expect(out + err).not.toContain("\u001b");
  }
});

test("a chroot in the url prefixes every key, and Ctrl-C leaves nothing", async () => {
  const held = sandbox.start(["run", "job", "--url", zookeeperUrl("/its/own"), "--", "sleep", "60"]);
  const nodes = (): Promise<readonly string[]> => listChildren(fixture.observer, "/its/own/holdfast/job");
  await until(async () => (await nodes()).length === 1, { within: TIMEOUT_MS, what: "the place" });
  expect((await sandbox.run(["ls", "--url", zookeeperUrl()])).out).toBe("");
  expect((await sandbox.run(["ls", "--url", zookeeperUrl("/its/own")])).out).toContain("job");
  process.kill(held.pid, "SIGINT");
  expect((await held.ended).code).toBe(130);
  expect(await nodes()).toEqual([]);
});

/** A command that ignores signals and writes the time as long as it lives. */
function ignoreTermCommand(name: string): {
  readonly command: readonly string[];
  waitForStart(): Promise<unknown>;
  lastAlive(): number;
} {
  const file = join(sandbox.folder, name);
  return {
    command: ["sh", "-c", `trap "" TERM INT; while :; do date +%s%N >> ${file}; sleep 0.02; done`],
    waitForStart: () => until(() => existsSync(file), { within: TIMEOUT_MS, what: "the command to work" }),
    lastAlive: () => Number(readFileSync(file, "utf8").trim().split("\n").at(-1)) / 1e6,
  };
}

test("when the wrapper is killed a command that ignores signals is gone before the next holder is granted", async () => {
  const { command, waitForStart, lastAlive } = ignoreTermCommand("orphan");
  const url = zookeeperUrl(`?sessionMs=${SESSION_MS}`);
  const first = sandbox.start(["run", "orphan", "--url", url, "--", ...command]);
  await waitForStart();
  process.kill(first.pid, "SIGKILL");
  const next = await sandbox.run(["run", "orphan", "--url", url, "--", "date", "+%s%N"]);
  expect(next.code).toBe(0);
  expect(lastAlive()).toBeLessThan(Number(next.out) / 1e6);
});

test("when the server falls silent the command is ended before its session can end, and the run reports the loss", async () => {
  const { command, waitForStart, lastAlive } = ignoreTermCommand("silent");
  const run = sandbox.start(["run", "silent", "--url", zookeeperUrl(`?sessionMs=${SESSION_MS}`), "--", ...command]);
  await waitForStart();
  process.kill(fixture.server.pid, "SIGSTOP");
  const from = Date.now();
  try {
    const { code, err } = await run.ended;
    expect(code).toBe(123);
    expect(err).toMatch(/losing "silent" \(store unreachable for .*\): sent TERM to \d+; KILL in/);
    expect(lastAlive() - from).toBeLessThan(SESSION_MS);
  } finally {
    process.kill(fixture.server.pid, "SIGCONT");
  }
});

test("--hold-at-least is refused before the command is started, since no node could outlive the session", async () => {
  const env = { HOLDFAST_URL: zookeeperUrl() };
  const { code, out, err } = await sandbox.run(["run", "/tick", "--hold-at-least", "5s", "--", "echo", "ran"], { env });
  expect({ code, out }).toEqual({ code: 64, out: "" });
  expect(err).toMatch(/--hold-at-least needs a store that keeps leases: .* as its client's session; nothing was run/);
});
