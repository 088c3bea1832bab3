/**
 * `npm run bench -- --torture [--rounds SEEDS] [--faults LIST] [RIVAL...]`: Holdfast and its rivals under the same `holdfast torture`, in
 * turns: each seed with each of them, one after the other. It writes one JSON below bench/results, which has a row for each run. It judges
 * nothing: the verdicts are those of the checker.
 */

import { execFile, spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describeMachine, readCommit } from "../harness/machine.ts";
import { IS_QUICK_RUN } from "../harness/quick-run.ts";
import { installThirdParty } from "../harness/third-party.ts";
import { readNpmVersion } from "../harness/versions.ts";
import type { TortureSubject } from "./subjects.ts";
import { TORTURE_SUBJECTS } from "./subjects.ts";

const RESULTS = "bench/results";
const PROGRAM = "build/src/cli/main.js";
const TIME = IS_QUICK_RUN ? "5s" : "30s";
/** Of the violations of a run: the others are in its directory. */
const EXAMPLES = 5;

/** What `holdfast torture --json` prints. */
interface Summary {
  readonly sentence: string;
  readonly verdict: string;
  readonly violations: readonly Violation[];
  readonly reasons: readonly string[];
  readonly figures: object;
  readonly notTested: Readonly<Record<string, string>>;
  readonly run: { readonly store: string; readonly versions: object };
}

interface Violation {
  readonly invariant: string;
  readonly key: string | null;
  readonly operations: readonly string[];
}

export interface TortureOptions {
  readonly seeds: number;
  /** As `holdfast torture` has them; undefined: all that are possible. */
  readonly faults: string | undefined;
  /** Of rivals; none: all. Holdfast always runs beside them. */
  readonly names: readonly string[];
}

export async function tortureRivals({ seeds, faults, names }: TortureOptions): Promise<void> {
  installThirdParty();
  const environment = { ...readCommit(), date: new Date().toISOString(), machine: describeMachine() };
  const directory = join(RESULTS, `torture-${environment.date.replaceAll(":", "-")}`);
  mkdirSync(directory, { recursive: true });
  const rows: object[] = [];
  const subjects = selectSubjects(names);
  for (let seed = 1; seed <= seeds; seed++) {
    for (const subject of subjects) {
      rows.push(await runSubject(subject, { seed, faults, directory }));
      writeFileSync(`${directory}.json`, JSON.stringify({ ...environment, rows }, null, 2));
    }
  }
  console.log(`results: ${directory}.json`);
}

/** Rivals by their adapters, and Holdfast on the stores of these. */
function selectSubjects(names: readonly string[]): readonly TortureSubject[] {
  const isNamed = ({ adapter }: TortureSubject): boolean => names.length === 0 || names.includes(adapter ?? "");
  const stores = new Set(TORTURE_SUBJECTS.filter(isNamed).map(({ store }) => store));
  return TORTURE_SUBJECTS.filter(
    (subject) => isNamed(subject) || (subject.adapter === null && stores.has(subject.store)),
  );
}

interface Run {
  readonly seed: number;
  readonly faults: string | undefined;
  readonly directory: string;
}

async function runSubject(
  { name, class: kind, store, adapter, folder, isNewer }: TortureSubject,
  { seed, faults, directory }: Run,
): Promise<object> {
  const shown = [
    ...["torture", "--start", store, "--time", TIME, "--seed", String(seed)],
    ...(adapter === null ? [] : ["--rival", `build/bench/rivals/${adapter}.js`]),
    ...(faults === undefined ? [] : ["--faults", faults]),
  ];
  const command = `holdfast ${shown.join(" ")}`;
  const out = join(directory, `${store}-${adapter ?? "holdfast"}-${seed}`);
  const row = { name, class: kind, version: folder === null ? "" : readNpmVersion(folder), store, seed, command };
  const result = await runProgram(isNewer === true ? findNode22() : process.execPath, [
    ...[PROGRAM, ...shown, "--json", "--quiet", "--out", out],
  ]);
  if (typeof result === "string") {
    console.log(`${name}, seed ${seed}: ${result}`);
    return { ...row, error: result };
  }
  const { sentence, verdict, violations, reasons, figures, notTested, run } = result;
  console.log(`${name}, seed ${seed}: ${sentence}`);
  return {
    ...{ ...row, sentence, verdict, reasons, figures, notTested },
    ...{ storeVersion: run.store, versions: run.versions },
    violations: countBy(violations.map(({ invariant }) => invariant)),
    overlaps: countOverlaps(violations),
    examples: violations.slice(0, EXAMPLES),
  };
}

/** What it printed; a string: why it failed. Its exit code is that of the verdict. */
function runProgram(node: string, args: readonly string[]): Promise<Summary | string> {
  return new Promise((resolve) => {
    execFile(node, args, { maxBuffer: 1 << 28 }, (error, stdout, stderr) => {
      if (stdout === "") resolve(stderr.trim() || String(error));
      else resolve(JSON.parse(stdout) as Summary);
    });
  });
}

function findNode22(): string {
  const args = ["--yes", "--prefer-offline", "--package", "node@22", "--", "node", "-p", "process.execPath"];
  return spawnSync("npx", args, { encoding: "utf8" }).stdout.trim();
}

/** By key, each first holder once: one that does not notice its loss is a violation with each of those that hold after it. */
function countOverlaps(violations: readonly Violation[]): Readonly<Record<string, number>> {
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
