// The files of runs as a server reads them: real files, real processes, the kernel's own locks.

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  appendFileSync,
  closeSync,
  existsSync,
  openSync,
  renameSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { expect, test } from "vitest";
import { newId } from "../../src/ids.ts";
import { makeReference } from "../../src/reference.ts";
import { flock } from "../../src/server/flock.ts";
import { bootId, processSpace, startOf } from "../../src/server/processes.ts";
import { newRunPath, openRuns, runPath } from "../../src/server/run-files.ts";
import type { Run, RunLife } from "../../src/server/run-life.ts";
import type { RunHead, RunProcess } from "../../src/server/run-record.ts";
import { END_LINE, headLine, processLine, runRecordOf } from "../../src/server/run-record.ts";
import { until } from "../support/wait-for.ts";
import { claimOf, cleanUp, client, folder, held, later, running } from "./support.ts";

cleanUp();

const silent = (): void => undefined;

/** A process that lives until the test ends. */
function living(
  stdio: ("ignore" | number)[] = ["ignore", "ignore", "ignore"],
  env: NodeJS.ProcessEnv = process.env,
): ChildProcess {
  const child = spawn("/bin/sleep", ["60"], { stdio, env });
  later(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  });
  return child;
}

async function ended(child: ChildProcess): Promise<void> {
  const exit = once(child, "exit");
  child.kill("SIGKILL");
  await exit;
}

const processOf = (role: RunProcess["role"], { pid = -1 }: { readonly pid?: number | undefined }): RunProcess => ({
  role,
  pid,
  start: startOf(pid),
});

type Given = { readonly head?: Partial<RunHead>; readonly processes?: readonly RunProcess[]; readonly text?: string };

/** A folder with the file of one run. */
function written({ head = {}, processes = [], text }: Given) {
  const runsIn = folder();
  const session = newId();
  const claim = claimOf("k", { ttlMs: "session" });
  const reference = makeReference([{ claim, run: 5n, token: 5n, prefix: "" }]);
  const whole = {
    boot: bootId(),
    space: processSpace(),
    session,
    label: "a run",
    reference,
    locked: false,
    holdUntil: 0,
    ...head,
  };
  const path = runPath(runsIn, session);
  writeFileSync(path, text ?? headLine(whole) + processes.map(processLine).join("") + "\n".repeat(100), {
    mode: 0o600,
  });
  return { runsIn, session, path, claim };
}

/** Locks the file, in the name of whoever inherits the descriptor that is given back. */
async function locked(path: string): Promise<number> {
  const descriptor = openSync(path, "r+");
  expect(await flock(descriptor, "exclusive")).toBe("locked");
  return descriptor;
}

async function found({ runsIn, session }: { readonly runsIn: string; readonly session: string }): Promise<Run> {
  const run = (await openRuns(runsIn, silent)).find(session);
  if (run === null) throw new Error("the file was not found");
  return run;
}

const comesTo = (run: Run, life: RunLife): Promise<unknown> =>
  until(() => run.look().life === life, { within: 5_000, what: `a run that is ${life}, not ${run.look().life}` });

test("a run is over when all of its processes are gone, and the wrapper alone only holds", async () => {
  const [wrapper, watchdog, command] = [living(), living(), living()];
  const all = [processOf("wrapper", wrapper), processOf("watchdog", watchdog), processOf("command", command)];
  const run = await found(written({ processes: all }));
  expect(run.look().life).toBe("works");
  await ended(watchdog);
  expect(run.look().life).toBe("works");
  await ended(command);
  expect(run.look().life).toBe("held");
  await ended(wrapper);
  expect(run.look().life).toBe("over");
});

test("a run that its watchdog has ended holds nothing, whoever of it lives, and is over with its wrapper", async () => {
  const [wrapper, watchdog, command] = [living(), living(), living()];
  const all = [processOf("wrapper", wrapper), processOf("watchdog", watchdog), processOf("command", command)];
  const it = written({ head: { locked: true }, processes: all });
  const lock = await locked(it.path);
  appendFileSync(it.path, END_LINE);
  const runs = await openRuns(it.runsIn, silent);
  expect((await runs.living()).runs).toMatchObject([{ session: it.session, claims: [] }]);
  const run = await found(it);
  expect(run.look().life).toBe("held");
  await ended(wrapper);
  expect(run.look().life).toBe("over");
  expect(await runs.living()).toEqual({ runs: [], unreadable: false });
  expect(existsSync(it.path)).toBe(false);
  closeSync(lock);
});

test("what is to be held for longer is told at a start for as long as that, of a run that is over and of one that was ended", async () => {
  const [wrapper, dead] = [living(), { pid: -1 }];
  for (const [one, life] of [
    [dead, "over"],
    [wrapper, "over"],
  ] as const) {
    const head = { holdUntil: Date.now() + 60_000 };
    const it = written({
      head,
      processes: [{ role: "wrapper", pid: one.pid as number, start: startOf(one.pid as number) ?? "0" }],
    });
    if (one === wrapper) appendFileSync(it.path, END_LINE);
    const [run, ...others] = (await (await openRuns(it.runsIn, silent)).living()).runs;
    expect(others).toEqual([]);
    expect(run).toMatchObject({ session: it.session, claims: [{ claim: { id: it.claim.id } }] });
    expect(run?.look().life).toBe(life);
    expect(run?.leftMs()).toBeGreaterThan(50_000);
  }
  const it = written({ head: { holdUntil: Date.now() - 1 }, processes: [{ role: "wrapper", pid: 1, start: "0" }] });
  expect((await (await openRuns(it.runsIn, silent)).living()).runs).toEqual([]);
  expect(existsSync(it.path)).toBe(false);
});

test("a watchdog that has ended its run while a server looks: what was read before is not renewed any more", async () => {
  const [wrapper, command] = [living(), living()];
  const it = written({ processes: [processOf("wrapper", wrapper), processOf("command", command)] });
  const run = await found(it);
  expect(run.look().life).toBe("works");
  appendFileSync(it.path, END_LINE);
  expect(run.look().life).toBe("held");
});

test("a watchdog alone is no work before a command is named: its wrapper was stopped in between", async () => {
  const [wrapper, watchdog] = [living(), living()];
  const run = await found(written({ processes: [processOf("wrapper", wrapper), processOf("watchdog", watchdog)] }));
  expect(run.look().life).toBe("held");
  await ended(wrapper);
  expect(run.look().life).toBe("works");
});

test("a process id that belongs to another process by now tells nothing", async () => {
  const { pid, start } = processOf("command", process);
  const run = await found(written({ processes: [{ role: "command", pid, start: String(Number(start) - 1) }] }));
  expect(run.look().life).toBe("over");
});

test("the process ids of an earlier boot are nobody's", async () => {
  const run = await found(written({ head: { boot: "of another day" }, processes: [processOf("command", process)] }));
  expect(run.look().life).toBe("over");
});

test("the process ids of another space tell nothing: without a lock it is unknown, with one the lock decides", async () => {
  const head = { space: "pid:[1]" };
  const processes = [processOf("command", process)];
  expect((await found(written({ head, processes }))).look().life).toBe("unknown");
  const it = written({ head: { ...head, locked: true }, processes });
  const lock = await locked(it.path);
  const heir = living(["ignore", "ignore", "ignore", lock]);
  closeSync(lock);
  const run = await found(it);
  await comesTo(run, "works");
  await ended(heir);
  await comesTo(run, "unknown");
});

test("all named processes are gone, and one that they started has the lock: the run works until that ends", async () => {
  const dead = living();
  const processes = [processOf("command", dead)];
  const it = written({ head: { locked: true }, processes });
  const lock = await locked(it.path);
  const heir = living(["ignore", "ignore", "ignore", lock]);
  closeSync(lock);
  await ended(dead);
  const runs = await openRuns(it.runsIn, silent);
  expect((await runs.living()).runs).toHaveLength(1);
  await ended(heir);
  await comesTo(runs.find(it.session) as Run, "over");
  expect(await runs.living()).toEqual({ runs: [], unreadable: false });
  expect(existsSync(it.path)).toBe(false);
});

test("wrapper and watchdog died before the command was named, which has closed what it inherited: it is found by its environment", async () => {
  const it = written({ head: { locked: true }, processes: [{ role: "wrapper", pid: 1, start: "0" }] });
  const command = living(["ignore", "ignore", "ignore"], { HOLDFAST_REFERENCE: referenceIn(it) });
  const runs = await openRuns(it.runsIn, silent);
  expect((await runs.living()).runs).toHaveLength(1);
  const run = await found(it);
  await comesTo(run, "works");
  await ended(command);
  await comesTo(run, "over");
});

test("the lock is free, since the command closed what it inherited: its process id keeps the run", async () => {
  const command = living();
  const run = await found(written({ head: { locked: true }, processes: [processOf("command", command)] }));
  expect(run.look().life).toBe("works");
  await ended(command);
  await comesTo(run, "over");
});

test.each([
  ["cut", (text: string) => text.slice(0, 60)],
  ["of a changed letter", (text: string) => text.replace("session", "sessiom")],
  ["empty", () => ""],
  ["of another version", (text: string) => text.replace('"run":1', '"run":2')],
])("a head that is %s names nothing: while somebody has the lock the server must wait", async (_, damage) => {
  const whole = headLine({
    boot: null,
    space: null,
    session: newId(),
    label: "",
    reference: "x",
    locked: true,
    holdUntil: 0,
  });
  const it = written({ text: damage(whole) });
  const lock = await locked(it.path);
  const told: string[] = [];
  const runs = await openRuns(it.runsIn, (message) => void told.push(message));
  expect(await runs.living()).toEqual({ runs: [], unreadable: true });
  expect(told).toEqual([expect.stringContaining("is damaged: what its run holds is not known")]);
  closeSync(lock);
  expect(await runs.living()).toEqual({ runs: [], unreadable: false });
  expect(existsSync(it.path)).toBe(false);
});

test("a damaged line of a process is passed over, the others count", async () => {
  const command = living();
  const it = written({});
  const head = headLine({
    boot: bootId(),
    space: processSpace(),
    session: it.session,
    label: "",
    reference: referenceIn(it),
    locked: false,
    holdUntil: 0,
  });
  const line = processLine(processOf("command", command));
  writeFileSync(it.path, `${head}${line.replace("command", "commanb")}${line}`);
  const run = await found(it);
  expect(run.look().life).toBe("works");
  writeFileSync(it.path, `${head}${line.slice(0, -10)}`);
  expect(run.look().life).toBe("over");
});

function referenceIn({ claim }: ReturnType<typeof written>): string {
  return makeReference([{ claim, run: 5n, token: 5n, prefix: "" }]);
}

test("a file that is being made is no run yet; one whose maker has died goes after a minute", async () => {
  const it = written({ processes: [processOf("command", process)] });
  const making = newRunPath(it.runsIn, it.session);
  renameSync(it.path, making);
  const runs = await openRuns(it.runsIn, silent);
  expect((await runs.living()).runs).toEqual([]);
  expect(existsSync(making)).toBe(true);
  utimesSync(making, 1, 1);
  await runs.living();
  expect(existsSync(making)).toBe(false);
});

test("what cannot be read is unknown, not over", async () => {
  const it = written({});
  renameSync(it.path, `${it.path}-away`);
  symlinkSync(`${it.path}-away`, it.path);
  expect((await found(it)).look().life).toBe("unknown");
});

test("what is written is read, keys, permits and label with it", () => {
  const holds = [{ key: 'a "key"', permits: 2, limit: 5 }] as const;
  const claim = claimOf(holds, { ttlMs: 5_000 });
  const reference = makeReference([{ claim, run: 7n, token: 8n, prefix: "" }]);
  const head = {
    boot: "b",
    space: "s",
    session: newId(),
    label: "ana@web-1 pid 1 (x)",
    locked: true,
    holdUntil: 5_000,
  };
  const processes: RunProcess[] = [{ role: "wrapper", pid: 4, start: "5" }];
  const record = runRecordOf(headLine({ ...head, reference }) + processes.map(processLine).join(""));
  expect(record).toMatchObject({ ...head, processes });
  expect(record?.claims).toMatchObject([{ claim: { id: claim.id, holds, ttlMs: 5_000, label: head.label }, run: 7n }]);
});

test.each(["state", "none"])(
  "a server (--state: %s) starts with what a living run holds, and goes on when it is over",
  async (kind) => {
    const dir = folder();
    const more = kind === "none" ? { state: "none" } : {};
    const command = living();
    const it = written({ processes: [processOf("command", command)] });
    const first = await running({ in: dir, ...more });
    const runsIn = kind === "none" ? `${first.path}.runs` : `${dir}/state/runs`;
    await first.close();
    renameSync(it.path, runPath(runsIn, it.session));
    const second = await running({ in: dir, ...more });
    const { driver, pushes } = await client(second.addresses[0] as string);
    const next = claimOf("k");
    expect(await driver.claim(next)).toMatchObject({ state: "waiting" });
    const [front] = await driver.list({ key: "k" }, 10);
    expect(front).toMatchObject({ label: "a run", answer: { state: "held", token: 5n } });
    await ended(command);
    await until(() => !existsSync(runPath(runsIn, it.session)), { within: 5_000, what: "the end of the run" });
    // without a state each start grants nothing for a minute
    if (kind === "state") expect(held(await pushes.granted(next)).token).toBeGreaterThan(5n);
  },
);
