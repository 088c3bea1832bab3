/** `holdfast torture`: locks under faults, with a verdict. */

import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { release, tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline/promises";
import { pathToFileURL } from "node:url";
import { connect } from "../../../client/connect.ts";
import { createDriver } from "../../../client/driver-url.ts";
import type { Locks } from "../../../client/locks.ts";
import { createLocks } from "../../../client/locks.ts";
import type { ConnectOptions } from "../../../client/options.ts";
import { quorum } from "../../../drivers/quorum/driver.ts";
import { PACKAGE_VERSION } from "../../../protocol/handshake.ts";
import type { Violation } from "../../../torture/checker.ts";
import { readHistory } from "../../../torture/history.ts";
import { openHoldfast } from "../../../torture/holdfast-subject.ts";
import type { ChildCommand } from "../../../torture/processes/child-command.ts";
import { serveRegister } from "../../../torture/register.ts";
import { formatSeconds } from "../../../torture/report/format.ts";
import type { Summary } from "../../../torture/report/summary.ts";
import { createSummary } from "../../../torture/report/summary.ts";
import type { Row } from "../../../torture/report/text.ts";
import { tableOf } from "../../../torture/report/text.ts";
import { writeReports } from "../../../torture/report/write-reports.ts";
import { withoutCreation } from "../../../torture/store-urls.ts";
import type { StartedStore, StoreFault, StoreSetup } from "../../../torture/stores/started-store.ts";
import { STORE_FAULTS, StoreFailedError } from "../../../torture/stores/started-store.ts";
import type { StoreName } from "../../../torture/stores/stores.ts";
import { startStore } from "../../../torture/stores/stores.ts";
import type { Adapter, OpenSubject } from "../../../torture/subject.ts";
import type { OpenLocks, TortureResult } from "../../../torture/torture.ts";
import { findLease, runTorture } from "../../../torture/torture.ts";
import type { WorkerSettings } from "../../../torture/worker.ts";
import { runWorker } from "../../../torture/worker.ts";
import { formatDuration } from "../../../util/duration.ts";
import { CommandError, toCommandError } from "../../errors.ts";
import { openStore } from "../../open-store.ts";
import { escapeControl, formatJsonLine, info, printLine } from "../../output.ts";
import { catchSignals } from "../../signals.ts";
import type { StoreChoice } from "../../store-choice.ts";
import { describeStore } from "../../store-choice.ts";
import type { TortureFlags, TortureSettings } from "./options.ts";
import { parseTortureFlags } from "./options.ts";
import { createRepeatCommand } from "./repeat-command.ts";

/** As those of Jepsen: unknown is no success. */
const EXIT_CODES_OF_VERDICTS = { ok: 0, violated: 1, unknown: 2 } as const;
const WORKERS = 5;
/** A worker may start while a fault strikes. */
const WORKER_CONNECT_TIMEOUT = "60s";
const REQUESTS_PER_SECOND = 1_000;
/** On a store of a user: others use it, too. */
const REQUESTS_PER_SECOND_OF_USERS = 200;
/** Violations on the terminal: the reports have all. */
const MAX_PRINTED = 20;
/** On the server of a rival, which Holdfast cannot ask: the shortest that others get. */
const LEASE_OF_RIVALS_MS = 2_000;

/** The exit code is that of the worst verdict. */
export async function tortureCommand(flags: TortureFlags): Promise<number> {
  const settings = parseTortureFlags(flags);
  const { terminating } = catchSignals();
  const subjects = settings.rivals.length === 0 ? [null] : settings.rivals;
  const stores = settings.choice === null ? settings.start : [null];
  for (const path of settings.rivals) await loadAdapter(path);
  await announce(settings);
  let worst = 0;
  for (const store of stores) {
    for (const subject of subjects) {
      const isOnly = stores.length * subjects.length === 1;
      const out = isOnly
        ? settings.out
        : join(settings.out, `${store ?? "store"}${subject === null ? "" : `-${nameOf(subject)}`}`);
      const result = await runOne(settings, store, subject, out, terminating);
      const { history, verdict, notTested, historyPath } = result;
      const summary = createSummary(history, verdict, notTested, createRepeatCommand(settings, store, subject));
      writeReports(out, summary, history, readHistory(historyPath));
      printResult(settings, summary, out);
      terminating.throwIfAborted();
      worst = Math.max(worst, EXIT_CODES_OF_VERDICTS[result.verdict.verdict]);
    }
  }
  return worst;
}

/** The commands of its child processes, which no user calls. */
export async function tortureWorkerCommand(): Promise<number> {
  return runWorker(openSubject);
}

export async function tortureRegisterCommand(
  socketPath: string,
  historyPath: string,
  startedAt: string,
): Promise<number> {
  serveRegister(socketPath, historyPath, startedAt);
  return new Promise(() => undefined);
}

async function openSubject({ subjectPath, driver, ...options }: WorkerSettings): ReturnType<OpenSubject> {
  if (subjectPath !== null) return (await loadAdapter(subjectPath)).openSubject(options);
  return openHoldfast(
    (settings) => openLocks(options.url, driver ?? undefined, { ...settings, connectTimeout: WORKER_CONNECT_TIMEOUT }),
    options,
  );
}

async function openLocks(url: string | undefined, driver: string | undefined, options: ConnectOptions): Promise<Locks> {
  const { connectTimeout, ...rest } = options;
  if (driver !== undefined) return (await openStore({ driver }, rest)).locks;
  const members = url?.split(" ") ?? [];
  if (members.length < 2) return connect(url, options);
  // a majority has no url of its own
  const drivers = await Promise.all(members.map((member) => createDriver(member, { connectTimeout })));
  return createLocks(quorum(drivers, connectTimeout === undefined ? {} : { connectTimeout }), rest);
}

/** @throws CommandError usage */
async function loadAdapter(path: string): Promise<Adapter> {
  const { href } = pathToFileURL(path);
  const adapter = (await import(href).catch((cause: Error) => {
    throw new CommandError("usage", `--rival ${path} cannot be loaded: ${cause.message.split("\n")[0]}`, { cause });
  })) as Partial<Adapter>;
  if (typeof adapter.openSubject === "function") return adapter as Adapter;
  throw new CommandError("usage", `--rival ${path} must export the function openSubject`);
}

/** Says what it will do; on a user's store it asks. @throws CommandError usage */
async function announce({ choice, faults, ms, isConfirmed, isQuiet, out }: TortureSettings): Promise<void> {
  if (choice === null) return;
  const lines = [
    `This will use ${describeStore(choice)} for about ${formatDuration(ms)}:`,
    `  - ${WORKERS} processes take and release locks whose keys begin with a random prefix, at most ${REQUESTS_PER_SECOND_OF_USERS} times a second, with leases of at most 10 s;`,
    "  - nothing is created or upgraded but these locks;",
    `  - faults (${faults.join(", ") || "none"}) strike these processes and their connections, never the store or its other users;`,
    "  - at its end it looks whether any of its locks is left;",
    `  - the history and the reports are written to ${out}.`,
  ];
  if (!isQuiet || !isConfirmed) for (const line of lines) info(line);
  if (isConfirmed) return;
  if (process.stdin.isTTY !== true)
    throw new CommandError("usage", "--yes is needed to do this without a terminal; nothing was done");
  const prompt = createInterface({ input: process.stdin, output: process.stderr });
  const answer = await prompt.question("Continue? [y/N] ");
  prompt.close();
  if (!/^y(?:es)?$/i.test(answer.trim())) throw new CommandError("usage", "not confirmed; nothing was done");
}

async function runOne(
  settings: TortureSettings,
  name: StoreName | null,
  subjectPath: string | null,
  out: string,
  signal: AbortSignal,
): Promise<TortureResult> {
  const temporaryDirectory = mkdtempSync(join(tmpdir(), "holdfast-torture-"));
  let store: StartedStore | null = null;
  try {
    const startOwn = subjectPath === null ? undefined : (await loadAdapter(subjectPath)).startStore;
    if (name !== null) {
      const setup = {
        directory: join(temporaryDirectory, "data"),
        ...{ holdfast: ownCommand(), faults: chooseStoreFaults(settings, subjectPath) },
      };
      store = await start(setup, (one) => (startOwn === undefined ? startStore(name, one) : startOwn(one.directory)));
    }
    const url = store?.url ?? settings.choice?.url;
    const usedUrl = store === null && url !== undefined ? withoutCreation(url) : url;
    const driver = settings.choice?.driver;
    const isOfRival = store !== null && startOwn !== undefined;
    const open: OpenLocks | null = isOfRival ? null : (options) => openLocks(usedUrl, driver, options);
    const prefix = `torture-${randomBytes(4).toString("hex")}/`;
    const storeName = store?.name ?? describeStore(settings.choice as StoreChoice);
    const ttlMs = open === null ? LEASE_OF_RIVALS_MS : await chooseLease(open, prefix, storeName);
    const { ms, seed } = settings;
    if (!settings.isQuiet) info(`${storeName}: ${formatDuration(ms)} of faults, then the repair; seed ${seed}`);
    return await runTorture({
      directory: out,
      temporaryDirectory,
      url: usedUrl ?? null,
      driver: driver ?? null,
      open,
      storeName,
      store,
      prefix,
      seed,
      ms,
      ttlMs,
      workers: WORKERS,
      faults: settings.faults,
      requestsPerSecond: store === null ? REQUESTS_PER_SECOND_OF_USERS : REQUESTS_PER_SECOND,
      subjectPath,
      subjectName: subjectPath === null ? `Holdfast ${PACKAGE_VERSION}` : nameOf(subjectPath),
      versions: {
        ...{ holdfast: PACKAGE_VERSION, node: process.version, kernel: release() },
        ...(store !== null && { store: store.name }),
      },
      workerCommand: ownCommand("torture-worker"),
      registerCommand: ownCommand("torture-register"),
      signal,
    });
  } catch (error) {
    throw error instanceof StoreFailedError ? new CommandError("unreachable", error.message, { cause: error }) : error;
  } finally {
    await store?.close();
    rmSync(temporaryDirectory, { recursive: true, force: true });
  }
}

/** @throws CommandError unreachable */
async function start(
  setup: StoreSetup,
  startChosen: (setup: StoreSetup) => Promise<StartedStore>,
): Promise<StartedStore> {
  mkdirSync(setup.directory, { mode: 0o700 });
  try {
    return await startChosen(setup);
  } catch (error) {
    throw new CommandError("unreachable", (error as Error).message, { cause: error });
  }
}

/** A rival promises nothing for a store without its data. */
function chooseStoreFaults({ faults }: TortureSettings, subjectPath: string | null): StoreFault[] {
  return STORE_FAULTS.filter((fault) => faults.includes(fault) && (subjectPath === null || fault !== "store-wipe"));
}

async function chooseLease(open: OpenLocks, prefix: string, storeName: string): Promise<number> {
  try {
    return await findLease(open, prefix);
  } catch (error) {
    throw toCommandError(error, storeName);
  }
}

function ownCommand(...args: readonly string[]): ChildCommand {
  return [process.execPath, ...process.execArgv, process.argv[1] as string, ...args] as unknown as ChildCommand;
}

function nameOf(path: string): string {
  return (path.split("/").at(-1) as string).replace(/\.[cm]?[jt]s$/, "");
}

function printResult({ isJson }: TortureSettings, summary: Summary, out: string): void {
  if (isJson) {
    printLine(formatJsonLine(summary));
    return;
  }
  printLine(escapeControl(summary.sentence));
  const rows: Row[] = [
    ...tableOf(summary.figures),
    ...Object.entries(summary.notTested).map(([name, why]): Row => [`not tested: ${name}`, escapeControl(why)]),
  ];
  const width = Math.max(...rows.map(([what]) => what.length));
  for (const [what, value] of rows) printLine(`  ${what.padEnd(width)}  ${value}`);
  for (const violation of summary.violations.slice(0, MAX_PRINTED)) printLine(`  ${describeViolation(violation)}`);
  printLine(`  history and reports: ${out}`);
}

/** A message may contain what a worker has printed. */
function describeViolation({ invariant, at, key, operations, message }: Violation): string {
  const of = key === null ? "" : ` of ${key}`;
  return escapeControl(`${formatSeconds(at)} ${invariant}${of}: ${message} (${operations.join(", ")})`);
}
