// The files of command runs as a server reads them: real files, real processes, the kernel's own locks.

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  appendFileSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import type { Readable } from "node:stream";
import { expect, test } from "vitest";
import { flock } from "../../../src/os/flock.ts";
import { readBootId, readPidNamespace, readStartTime } from "../../../src/os/process-info.ts";
import { encodeReference } from "../../../src/protocol/lock-reference.ts";
import type { CommandRun, RunStatus } from "../../../src/server/runs/command-run.ts";
import type { RunHeader, RunProcess } from "../../../src/server/runs/run-file-format.ts";
import {
  decodeRunRecord,
  END_LINE,
  encodeHeader,
  encodeProcess,
  runFilePath,
  temporaryRunFilePath,
} from "../../../src/server/runs/run-file-format.ts";
import { openCommandRuns } from "../../../src/server/runs/run-file-reader.ts";
import { until } from "../../../src/testing/until.ts";
import type { ProcessId } from "../../../src/torture/processes/process-tree.ts";
import { descendants } from "../../../src/torture/processes/process-tree.ts";
import { systemClock } from "../../../src/util/clock.ts";
import { randomId } from "../../../src/util/ids.ts";
import {
  cleanUpAfterEach,
  createTemporaryDirectory,
  expectHeld,
  makeClaim,
  onCleanup,
  openClient,
  startServer,
} from "../../support/server-fixture.ts";

cleanUpAfterEach();

const ignoreWarnings = (): void => undefined;

/** A process that lives until the test ends. */
function startProcess(
  stdio: ("ignore" | number)[] = ["ignore", "ignore", "ignore"],
  env: NodeJS.ProcessEnv = process.env,
): ChildProcess {
  const child = spawn("/bin/sleep", ["60"], { stdio, env });
  onCleanup(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  });
  return child;
}

async function waitForExit(child: ChildProcess): Promise<void> {
  const exit = once(child, "exit");
  child.kill("SIGKILL");
  await exit;
}

const processEntry = (role: RunProcess["role"], { pid = -1 }: { readonly pid?: number | undefined }): RunProcess => ({
  role,
  pid,
  start: readStartTime(pid),
});

type RecordContent = {
  readonly head?: Partial<RunHeader>;
  readonly processes?: readonly RunProcess[];
  readonly text?: string;
};

/** A directory with the file of one run. */
function writeRecord({ head = {}, processes = [], text }: RecordContent) {
  const runsIn = createTemporaryDirectory();
  const session = randomId();
  const claim = makeClaim("k", { ttlMs: "session" });
  const reference = encodeReference([{ claim, firstToken: 5n, token: 5n, prefix: "" }]);
  const header = {
    boot: readBootId(),
    space: readPidNamespace(),
    session,
    label: "a run",
    reference,
    locked: false,
    holdUntil: 0,
    holdUntilUptime: 0,
    ...head,
  };
  const path = runFilePath(runsIn, session);
  writeFileSync(path, text ?? encodeHeader(header) + processes.map(encodeProcess).join("") + "\n".repeat(100), {
    mode: 0o600,
  });
  return { runsIn, session, path, claim };
}

/** Locks the file; a process that inherits the returned descriptor keeps the lock. */
async function lockFile(path: string): Promise<number> {
  const descriptor = openSync(path, "r+");
  expect(await flock(descriptor, "exclusive")).toBe("locked");
  return descriptor;
}

async function readRun({
  runsIn,
  session,
}: {
  readonly runsIn: string;
  readonly session: string;
}): Promise<CommandRun> {
  const run = (await openCommandRuns(runsIn, ignoreWarnings)).find(session);
  if (run === null) throw new Error("the file was not found");
  return run;
}

const expectLife = (run: CommandRun, status: RunStatus): Promise<unknown> =>
  until(() => run.probe().status === status, {
    within: 5_000,
    what: `a run that is ${status}, not ${run.probe().status}`,
  });

test("a run is over when all of its processes are gone, and is only kept while just its wrapper lives", async () => {
  const [wrapper, watchdog, command] = [startProcess(), startProcess(), startProcess()];
  const processes = [
    processEntry("wrapper", wrapper),
    processEntry("watchdog", watchdog),
    processEntry("command", command),
  ];
  const run = await readRun(writeRecord({ processes }));
  expect(run.probe().status).toBe("works");
  await waitForExit(watchdog);
  expect(run.probe().status).toBe("works");
  await waitForExit(command);
  expect(run.probe().status).toBe("held");
  await waitForExit(wrapper);
  expect(run.probe().status).toBe("over");
});

test("a run that its watchdog has ended holds nothing, whichever of its processes live, and is over when its wrapper is gone", async () => {
  const [wrapper, watchdog, command] = [startProcess(), startProcess(), startProcess()];
  const processes = [
    processEntry("wrapper", wrapper),
    processEntry("watchdog", watchdog),
    processEntry("command", command),
  ];
  const it = writeRecord({ head: { locked: true }, processes });
  const lock = await lockFile(it.path);
  appendFileSync(it.path, END_LINE);
  const runs = await openCommandRuns(it.runsIn, ignoreWarnings);
  expect((await runs.findLiving()).runs).toMatchObject([{ session: it.session, claims: [] }]);
  const run = await readRun(it);
  expect(run.probe().status).toBe("held");
  await waitForExit(wrapper);
  expect(run.probe().status).toBe("over");
  expect(await runs.findLiving()).toEqual({ runs: [], hasUnreadable: false });
  expect(existsSync(it.path)).toBe(false);
  closeSync(lock);
});

test("after a start a hold-at-least time is reported for its remainder, both of a run that is over and of one that was ended", async () => {
  const [wrapper, endedProcess] = [startProcess(), { pid: -1 }];
  for (const [one, life] of [
    [endedProcess, "over"],
    [wrapper, "over"],
  ] as const) {
    const head = { holdUntilUptime: systemClock.uptime() + 60_000 };
    const it = writeRecord({
      head,
      processes: [{ role: "wrapper", pid: one.pid as number, start: readStartTime(one.pid as number) ?? "0" }],
    });
    if (one === wrapper) appendFileSync(it.path, END_LINE);
    const [run, ...otherRuns] = (await (await openCommandRuns(it.runsIn, ignoreWarnings)).findLiving()).runs;
    expect(otherRuns).toEqual([]);
    expect(run).toMatchObject({ session: it.session, claims: [{ claim: { id: it.claim.id } }] });
    expect(run?.probe().status).toBe(life);
    expect(run?.remainingHoldMs()).toBeGreaterThan(50_000);
  }
  const it = writeRecord({
    head: { holdUntilUptime: systemClock.uptime() - 1 },
    processes: [{ role: "wrapper", pid: 1, start: "0" }],
  });
  expect((await (await openCommandRuns(it.runsIn, ignoreWarnings)).findLiving()).runs).toEqual([]);
  expect(existsSync(it.path)).toBe(false);
});

test("a hold-at-least time does not follow the wall clock, but for a run of an earlier boot", async () => {
  const hold = { holdUntil: Date.now() + 1_000_000, holdUntilUptime: systemClock.uptime() + 8_000 };
  expect((await readRun(writeRecord({ head: hold }))).remainingHoldMs()).toBeLessThanOrEqual(8_000);
  const earlier = await readRun(writeRecord({ head: { ...hold, boot: "of another day" } }));
  expect(earlier.remainingHoldMs()).toBeGreaterThan(900_000);
});

test("a watchdog that ends its run while a server reads the file: the claims read before are not renewed any more", async () => {
  const [wrapper, command] = [startProcess(), startProcess()];
  const it = writeRecord({ processes: [processEntry("wrapper", wrapper), processEntry("command", command)] });
  const run = await readRun(it);
  expect(run.probe().status).toBe("works");
  appendFileSync(it.path, END_LINE);
  expect(run.probe().status).toBe("held");
});

test("a watchdog alone, before a command is named, is not an active run: its wrapper was stopped in between", async () => {
  const [wrapper, watchdog] = [startProcess(), startProcess()];
  const run = await readRun(
    writeRecord({ processes: [processEntry("wrapper", wrapper), processEntry("watchdog", watchdog)] }),
  );
  expect(run.probe().status).toBe("held");
  await waitForExit(wrapper);
  expect(run.probe().status).toBe("works");
});

test("a process id that belongs to another process now says nothing about the run", async () => {
  const { pid, start } = processEntry("command", process);
  const run = await readRun(writeRecord({ processes: [{ role: "command", pid, start: String(Number(start) - 1) }] }));
  expect(run.probe().status).toBe("over");
});

test("process ids of an earlier boot match no process", async () => {
  const run = await readRun(
    writeRecord({ head: { boot: "of another day" }, processes: [processEntry("command", process)] }),
  );
  expect(run.probe().status).toBe("over");
});

/** A process in a pid namespace of its own, and what it is there. `end` ends the namespace. */
async function startInNamespace(): Promise<{
  readonly head: Partial<RunHeader>;
  readonly processes: readonly RunProcess[];
  readonly kill: () => void;
  readonly end: () => Promise<void>;
}> {
  const script = "sleep 60 & echo $! $(cut -d' ' -f22 /proc/$!/stat) $(readlink /proc/self/ns/pid); wait; sleep 60";
  const flags = ["--pid", "--fork", "--kill-child", "--mount-proc"];
  const child = spawn("unshare", [...flags, "sh", "-c", script], { stdio: ["ignore", "pipe", "ignore"] });
  const end = (): Promise<void> => (child.signalCode === null ? waitForExit(child) : Promise.resolve());
  onCleanup(end);
  const [line] = await once(child.stdout as Readable, "data");
  const [pid = "", start = "", space = ""] = String(line).trim().split(" ");
  const outside = identifyInNamespace(child.pid as number, pid);
  return {
    head: { space, locked: true },
    processes: [{ role: "command", pid: Number(pid), start }],
    kill: () => process.kill(outside, "SIGKILL"),
    end,
  };
}

/** The process below `pid` that has this id in its own namespace. */
function identifyInNamespace(pid: number, idInside: string): number {
  const isIt = (candidate: ProcessId): boolean =>
    readFileSync(`/proc/${candidate.pid}/status`, "latin1").includes(`NSpid:\t${candidate.pid}\t${idInside}\n`);
  return descendants(pid).find(isIt)?.pid ?? -1;
}

test.skipIf(process.getuid?.() !== 0)(
  "a command in another pid namespace that closed the inherited descriptor keeps the run; its end, or that of the namespace, is noticed",
  async () => {
    for (const way of ["kill", "end"] as const) {
      const { head, processes, ...ways } = await startInNamespace();
      const run = await readRun(writeRecord({ head, processes }));
      expect(run.probe().status).toBe("works");
      expect(run.keeper).toMatch(/^pid \d+ \(sleep\)$/);
      await ways[way]();
      await expectLife(run, "over");
    }
  },
);

test("a namespace whose processes this machine does not show: without a lock the run is unknown, with one the lock decides", async () => {
  const head = { space: null };
  const processes = [processEntry("command", process)];
  expect((await readRun(writeRecord({ head, processes }))).probe().status).toBe("unknown");
  const it = writeRecord({ head: { ...head, locked: true }, processes });
  const lock = await lockFile(it.path);
  const inheritor = startProcess(["ignore", "ignore", "ignore", lock]);
  closeSync(lock);
  const run = await readRun(it);
  await expectLife(run, "works");
  await until(() => run.keeper === `pid ${inheritor.pid} (sleep)`, {
    within: 5_000,
    what: "the name of what keeps it",
  });
  await waitForExit(inheritor);
  await expectLife(run, "unknown");
  expect(run.keeper).toBe(null);
});

test("when all named processes are gone and a child of theirs has the lock, the run is active until that child ends", async () => {
  const endedProcess = startProcess();
  const processes = [processEntry("command", endedProcess)];
  const it = writeRecord({ head: { locked: true }, processes });
  const lock = await lockFile(it.path);
  const inheritor = startProcess(["ignore", "ignore", "ignore", lock]);
  closeSync(lock);
  await waitForExit(endedProcess);
  const runs = await openCommandRuns(it.runsIn, ignoreWarnings);
  expect((await runs.findLiving()).runs).toHaveLength(1);
  await waitForExit(inheritor);
  await expectLife(runs.find(it.session) as CommandRun, "over");
  expect(await runs.findLiving()).toEqual({ runs: [], hasUnreadable: false });
  expect(existsSync(it.path)).toBe(false);
});

test("wrapper and watchdog died before the command was named, and it closed the inherited descriptor: it is found by its environment", async () => {
  const it = writeRecord({ head: { locked: true }, processes: [{ role: "wrapper", pid: 1, start: "0" }] });
  const command = startProcess(["ignore", "ignore", "ignore"], { HOLDFAST_REFERENCE: decodeClaimReference(it) });
  const runs = await openCommandRuns(it.runsIn, ignoreWarnings);
  expect((await runs.findLiving()).runs).toHaveLength(1);
  const run = await readRun(it);
  await expectLife(run, "works");
  await waitForExit(command);
  await expectLife(run, "over");
});

test("the lock is free, since the command closed the inherited descriptor: its process id keeps the run", async () => {
  const command = startProcess();
  const run = await readRun(writeRecord({ head: { locked: true }, processes: [processEntry("command", command)] }));
  expect(run.probe().status).toBe("works");
  await waitForExit(command);
  await expectLife(run, "over");
});

test.each([
  ["cut", (text: string) => text.slice(0, 60)],
  ["of a changed letter", (text: string) => text.replace("session", "sessiom")],
  ["empty", () => ""],
  ["of another version", (text: string) => text.replace('"run":2', '"run":3')],
])(
  "a head that is %s identifies no run: while a process has the lock the server must wait, and once after that",
  async (_, damage) => {
    const header = encodeHeader({
      boot: null,
      space: null,
      session: randomId(),
      label: "",
      reference: "x",
      locked: true,
      holdUntil: 0,
      holdUntilUptime: 0,
    });
    const it = writeRecord({ text: damage(header) });
    const lock = await lockFile(it.path);
    const warnings: string[] = [];
    const runs = await openCommandRuns(it.runsIn, (message) => void warnings.push(message));
    expect(await runs.findLiving()).toEqual({ runs: [], hasUnreadable: true });
    expect(warnings).toEqual([expect.stringContaining("is damaged: the locks of its run are unknown")]);
    closeSync(lock);
    // its run may have had to keep its locks after its end, unless nothing was ever written
    const mayHold = damage(header) !== "";
    expect(await runs.findLiving()).toEqual({ runs: [], hasUnreadable: mayHold });
    expect(existsSync(it.path)).toBe(false);
    expect(await runs.findLiving()).toEqual({ runs: [], hasUnreadable: false });
  },
);

test("a damaged process line is skipped, the others count", async () => {
  const command = startProcess();
  const it = writeRecord({});
  const head = encodeHeader({
    boot: readBootId(),
    space: readPidNamespace(),
    session: it.session,
    label: "",
    reference: decodeClaimReference(it),
    locked: false,
    holdUntil: 0,
    holdUntilUptime: 0,
  });
  const line = encodeProcess(processEntry("command", command));
  writeFileSync(it.path, `${head}${line.replace("command", "commanb")}${line}`);
  const run = await readRun(it);
  expect(run.probe().status).toBe("works");
  writeFileSync(it.path, `${head}${line.slice(0, -10)}`);
  expect(run.probe().status).toBe("over");
});

function decodeClaimReference({ claim }: ReturnType<typeof writeRecord>): string {
  return encodeReference([{ claim, firstToken: 5n, token: 5n, prefix: "" }]);
}

test("an unfinished file is not a run yet; when its creator has died it is removed after a minute", async () => {
  const it = writeRecord({ processes: [processEntry("command", process)] });
  const temporaryFile = temporaryRunFilePath(it.runsIn, it.session);
  renameSync(it.path, temporaryFile);
  const runs = await openCommandRuns(it.runsIn, ignoreWarnings);
  expect((await runs.findLiving()).runs).toEqual([]);
  expect(existsSync(temporaryFile)).toBe(true);
  utimesSync(temporaryFile, 1, 1);
  await runs.findLiving();
  expect(existsSync(temporaryFile)).toBe(false);
});

test("a file that cannot be removed stops neither the server nor its start, and is logged", async () => {
  const it = writeRecord({ processes: [{ role: "wrapper", pid: 1, start: "0" }] });
  const abandonedFile = temporaryRunFilePath(it.runsIn, randomId());
  mkdirSync(abandonedFile);
  utimesSync(abandonedFile, 1, 1);
  const logLines: string[] = [];
  const runs = await openCommandRuns(it.runsIn, (message, error) => void logLines.push(`${message}: ${error}`));
  const run = runs.find(it.session);
  expect(await runs.findLiving()).toEqual({ runs: [], hasUnreadable: false });
  expect(logLines).toEqual([expect.stringMatching(/[.]new cannot be removed: .*(EISDIR|EPERM)/)]);
  // a path that leads through a file: unlink fails, for root too
  renameSync(it.runsIn, `${it.runsIn}-away`);
  onCleanup(() => rmSync(`${it.runsIn}-away`, { recursive: true }));
  writeFileSync(it.runsIn, "");
  run?.remove();
  expect(logLines).toHaveLength(2);
  expect(logLines[1]).toContain(`${it.path} cannot be removed: Error: ENOTDIR`);
});

test("a run whose file cannot be read is unknown, not over", async () => {
  const it = writeRecord({});
  renameSync(it.path, `${it.path}-away`);
  symlinkSync(`${it.path}-away`, it.path);
  expect((await readRun(it)).probe().status).toBe("unknown");
});

test("a written file is read back with its keys, permits and label", () => {
  const locks = [{ key: 'a "key"', permits: 2, limit: 5 }] as const;
  const claim = makeClaim(locks, { ttlMs: 5_000 });
  const reference = encodeReference([{ claim, firstToken: 7n, token: 8n, prefix: "" }]);
  const head = {
    boot: "b",
    space: "s",
    session: randomId(),
    label: "ana@web-1 pid 1 (x)",
    locked: true,
    holdUntil: 5_000,
    holdUntilUptime: 6_000,
  };
  const processes: RunProcess[] = [{ role: "wrapper", pid: 4, start: "5" }];
  const record = decodeRunRecord(encodeHeader({ ...head, reference }) + processes.map(encodeProcess).join(""));
  expect(record).toMatchObject({ ...head, processes });
  expect(record?.claims).toMatchObject([
    { claim: { id: claim.id, locks, ttlMs: 5_000, label: head.label }, firstToken: 7n },
  ]);
});

test.each(["state", "none"])(
  "a server (--state: %s) starts with the claims of an active run, and grants normally when it is over",
  async (kind) => {
    const dir = createTemporaryDirectory();
    const options = kind === "none" ? { state: "none" } : {};
    const command = startProcess();
    const it = writeRecord({ processes: [processEntry("command", command)] });
    const first = await startServer({ in: dir, ...options });
    const runsIn = kind === "none" ? `${first.path}.runs` : `${dir}/state/runs`;
    await first.close();
    renameSync(it.path, runFilePath(runsIn, it.session));
    const second = await startServer({ in: dir, ...options });
    const { driver, pushes } = await openClient(second.addresses[0] as string);
    const next = makeClaim("k");
    expect(await driver.claim(next)).toMatchObject({ state: "waiting" });
    const [front] = (await driver.list({ key: "k" }, { max: 10 })).items;
    expect(front).toMatchObject({
      label: `a run, kept by pid ${command.pid} (sleep)`,
      answer: { state: "held", token: 5n },
    });
    await waitForExit(command);
    await until(() => !existsSync(runFilePath(runsIn, it.session)), { within: 5_000, what: "the end of the run" });
    // without a state directory each start grants nothing for a minute
    if (kind === "state") expect(expectHeld(await pushes.waitForGrant(next)).token).toBeGreaterThan(5n);
  },
);
