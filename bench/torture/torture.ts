/**
 * `npm run bench -- --torture [--seeds FIRST-LAST] [--time T] [--faults LIST] [NAME...]`: Holdfast on every store, and its rivals, under the
 * same `holdfast torture`, in turns: each seed with each of them, one after the other. NAME selects: a store, an adapter of bench/rivals,
 * or "holdfast". It writes one file, which has a row for each run, also for one that failed. It judges nothing: the verdicts are those of
 * the checker. The histories and reports are beside the file, in a folder that is not in the tree.
 */

import { execFile, spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Summary } from "../../src/torture/report/summary.ts";
import { describeMachine, readProductCommit } from "../harness/machine.ts";
import { installThirdParty } from "../harness/third-party.ts";
import type { TorturePlan } from "./plan.ts";
import type { RunFailure, RunResult, TortureRow } from "./report.ts";
import { formatReport } from "./report.ts";
import type { TortureSubject } from "./subjects.ts";
import { isUrlStore } from "./subjects.ts";
import { startUrlStore } from "./url-stores.ts";

const RESULTS = "bench/results";
const PROGRAM = "build/src/cli/main.js";
/** For the start, the repair and the verdict of a run. */
const REST_MS = 300_000;
/** Of the violations of a run: the others are in its folder. */
const EXAMPLES = 3;
const MAX_ERROR_LENGTH = 500;

export async function torture({ subjects, seeds, ...plan }: TorturePlan): Promise<void> {
  if (subjects.some(({ adapter }) => adapter !== null)) installThirdParty();
  const environment = {
    ...readProductCommit(),
    ...{ date: new Date().toISOString(), machine: describeMachine(), node: process.version },
  };
  const folder = join(RESULTS, `torture-${environment.date.replaceAll(":", "-")}`);
  mkdirSync(folder, { recursive: true });
  const rows: TortureRow[] = [];
  for (const seed of seeds) {
    for (const subject of subjects) {
      rows.push(await runSubject(subject, { ...plan, seed, folder }));
      // after each run, so that what a long call has found is not lost with it
      writeFileSync(`${folder}.json`, formatReport({ ...environment, rows }));
    }
  }
  console.log(`results: ${folder}.json`);
}

interface Run extends Pick<TorturePlan, "time" | "ms" | "faults"> {
  readonly seed: number;
  /** For its history and reports. */
  readonly folder: string;
}

async function runSubject(subject: TortureSubject, run: Run): Promise<TortureRow> {
  const { class: kind, store, adapter, isByHand } = subject;
  const result = await runTorture(subject, run);
  const summary = "error" in result ? result.error : `${result.verdict}, ${result.figures.holds} holds`;
  console.log(`${adapter ?? kind} on ${store}, seed ${run.seed}: ${summary}`);
  const row = { class: kind, store, seed: run.seed, command: commandOf(subject, run), ...result };
  return adapter === null || isByHand === true
    ? row
    : (JSON.parse(hideName(JSON.stringify(row), adapter)) as TortureRow);
}

/** What a user types to repeat it. */
function commandOf({ store, adapter }: TortureSubject, { seed, time, faults }: Run): string {
  const rest = faults === undefined ? "" : ` --faults ${faults}`;
  if (isUrlStore(store)) return `npm run bench -- --torture --seeds ${seed} --time ${time}${rest} ${store}`;
  const rival = adapter === null ? "" : ` --rival build/bench/rivals/${adapter}.js`;
  return `holdfast torture --start ${store} --time ${time} --seed ${seed}${rest}${rival}`;
}

/** Until its maintainers have been asked, a published row has its class only. */
function hideName(text: string, adapter: string): string {
  return text.replaceAll(adapter, "RIVAL");
}

async function runTorture(subject: TortureSubject, run: Run): Promise<RunResult | RunFailure> {
  const { store, adapter, isNewer } = subject;
  const urlStore = isUrlStore(store) ? await startUrlStore(store) : null;
  try {
    const where = urlStore === null ? ["--start", store] : ["--url", urlStore.url, "--yes"];
    const args = [
      ...[PROGRAM, "torture", ...where, "--time", run.time, "--seed", String(run.seed), "--json", "--quiet"],
      ...(adapter === null ? [] : ["--rival", `build/bench/rivals/${adapter}.js`]),
      ...(run.faults === undefined ? [] : ["--faults", run.faults]),
      ...["--out", join(run.folder, `${store}-${adapter ?? "holdfast"}-${run.seed}`)],
    ];
    const node = isNewer === true ? findNode22() : process.execPath;
    return await runProgram(node, args, { ...process.env, ...urlStore?.environment }, run.ms + REST_MS);
  } finally {
    await urlStore?.close();
  }
}

/** Its exit code is that of the verdict. One that hangs is killed, and its processes end with it. */
function runProgram(
  node: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  timeout: number,
): Promise<RunResult | RunFailure> {
  return new Promise((resolve) => {
    execFile(node, args, { env, timeout, killSignal: "SIGKILL", maxBuffer: 1 << 28 }, (error, stdout, stderr) => {
      if (error?.killed === true) resolve({ error: `it had not ended after ${timeout / 1_000} s` });
      else if (stdout === "") resolve({ error: (stderr.trim() || String(error)).slice(0, MAX_ERROR_LENGTH) });
      else resolve(toResult(JSON.parse(stdout) as Summary));
    });
  });
}

function toResult(summary: Summary): RunResult {
  const { store, verdict, reasons, notTested, figures, ttlMs, workers, seconds, faults, violations } = summary;
  return {
    storeName: store,
    ...{ verdict, reasons, ttlMs, workers, seconds, faults, notTested, figures },
    violations: countBy(violations.map(({ invariant }) => invariant)),
    overlaps: countOverlaps(violations),
    examples: violations.slice(0, EXAMPLES),
  };
}

function findNode22(): string {
  const args = ["--yes", "--prefer-offline", "--package", "node@22", "--", "node", "-p", "process.execPath"];
  return spawnSync("npx", args, { encoding: "utf8" }).stdout.trim();
}

function countOverlaps(violations: Summary["violations"]): Readonly<Record<string, number>> {
  const first = new Map<string, string>();
  for (const { invariant, key, operations } of violations)
    if (invariant === "exclusion") first.set(`${operations[0]} ${key}`, key ?? "");
  return countBy([...first.values()]);
}

function countBy(names: readonly string[]): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}
