// `npm run bench -- [--quick] [case...]`: measures, and (unless quick) writes one JSON a run below bench/results, which
// is not in the tree. Fails if a gate does not hold; rates are goals, and only reported.
// `npm run bench -- --page [RUN.json...]`: puts the figures of these runs into docs/results.md, and writes
// docs/benchmarks.md from it, and into docs/evidence.md those of all files of --torture.
// `npm run bench -- --compare BUILD [--rounds N] [SUBJECT...]`: see compare/compare.ts.
// `npm run bench -- --imports BUILD [--rounds N] [ENTRY...]`: see compare/imports.ts.
// `npm run bench -- --torture [--seeds FIRST-LAST] [--time T] [--faults LIST] [NAME...]`: see torture/torture.ts.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { CASES } from "./cases/cases.ts";
import { compareBuilds } from "./compare/compare.ts";
import { compareImports } from "./compare/imports.ts";
import { fillPage, renderBlocks } from "./evidence/page.ts";
import { readTortureReports } from "./evidence/results.ts";
import type { BenchCase } from "./harness/bench-case.ts";
import { describeMachine, otherLoads, readCommit } from "./harness/machine.ts";
import { IS_QUICK_RUN } from "./harness/quick-run.ts";
import type { CaseReport, Report } from "./harness/report.ts";
import { failedGates, renderLines } from "./harness/report.ts";
import { quantile } from "./harness/stats.ts";
import { installThirdParty } from "./harness/third-party.ts";
import { readVersions } from "./harness/versions.ts";
import { renderPage } from "./page/page.ts";
import { addRun, parseResults, renderResults } from "./page/results.ts";
import { parsePlan } from "./torture/plan.ts";
import { torture } from "./torture/torture.ts";

const RUNS = "bench/results";
const RESULTS_FILE = "docs/results.md";
const PAGE_FILE = "docs/benchmarks.md";
const EVIDENCE_FILE = "docs/evidence.md";

/** By their names, or by the first words of them: "sql-uncontended" is that case on all databases. */
function selectCases(names: readonly string[]): readonly BenchCase[] {
  const isNamedBy = (benchCase: BenchCase, name: string): boolean =>
    benchCase.name === name || benchCase.name.startsWith(`${name}-`);
  const isNamed = (benchCase: BenchCase): boolean => names.some((name) => isNamedBy(benchCase, name));
  const unknown = names.filter((name) => !CASES.some((benchCase) => isNamedBy(benchCase, name)));
  if (unknown.length > 0) {
    console.error(`no case ${unknown.join(", ")}; there are ${CASES.map(({ name }) => name).join(", ")}`);
    process.exit(64);
  }
  return names.length === 0 ? CASES : CASES.filter(isNamed);
}

async function runCase(benchCase: BenchCase): Promise<CaseReport> {
  const { name, title, about } = benchCase;
  const startedAt = performance.now();
  const seconds = (): number => (performance.now() - startedAt) / 1_000;
  try {
    const findings = await benchCase.run();
    return { name, title, about, seconds: seconds(), ...findings };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return { name, title, about, seconds: seconds(), rows: [], checks: [], error: message };
  }
}

async function main(names: readonly string[]): Promise<void> {
  const cases = selectCases(names);
  installThirdParty();
  const before = { ...readCommit(), date: new Date().toISOString(), node: process.version, machine: describeMachine() };
  const reports: CaseReport[] = [];
  for (const benchCase of cases) {
    const report = await runCase(benchCase);
    reports.push(report);
    console.log(renderLines(report).join("\n"));
  }
  // a case that keeps its own time never looks at the other load
  const loads = otherLoads().length === 0 ? [0] : otherLoads();
  const otherLoad = { median: quantile(loads, 0.5), most: Math.max(0, ...loads) };
  // after the cases, which install what is missing
  const report: Report = { ...before, versions: readVersions(), otherLoad, cases: reports };
  // a quick run only shows that the cases run
  if (!IS_QUICK_RUN) {
    mkdirSync(RUNS, { recursive: true });
    const file = join(RUNS, `${before.date.replaceAll(":", "-")}.json`);
    writeFileSync(file, JSON.stringify(report, null, 2));
    console.log(`results: ${file}`);
  }
  const faults = failedGates(report);
  for (const fault of faults) console.error(`FAILED ${fault}`);
  process.exitCode = faults.length === 0 ? 0 : 1;
}

function writePage(runs: readonly string[]): void {
  const results = runs
    .map((file) => JSON.parse(readFileSync(file, "utf8")) as Report)
    .reduce((all, run) => addRun(all, run, CASES), parseResults(readFileSync(RESULTS_FILE, "utf8")));
  writeFileSync(RESULTS_FILE, renderResults(results));
  writeFileSync(PAGE_FILE, renderPage(CASES, results));
  const evidence = readFileSync(EVIDENCE_FILE, "utf8");
  writeFileSync(EVIDENCE_FILE, fillPage(evidence, renderBlocks(readTortureReports())));
}

const { values, positionals } = parseArgs({
  options: {
    // see harness/quick-run.ts
    quick: { type: "boolean" },
    page: { type: "boolean" },
    compare: { type: "string" },
    imports: { type: "string" },
    torture: { type: "boolean" },
    rounds: { type: "string" },
    seeds: { type: "string" },
    time: { type: "string" },
    faults: { type: "string" },
  },
  allowPositionals: true,
});
const rounds = Number(values.rounds ?? 15);
if (values.page === true) writePage(positionals);
else if (values.torture === true) await torture(parsePlan(values, positionals));
else if (values.compare === undefined && values.imports === undefined) await main(positionals);
else if (!Number.isInteger(rounds) || rounds < 1) {
  console.error(
    "--compare BUILD [--rounds N] [SUBJECT...], --imports BUILD [--rounds N] [ENTRY...]: BUILD is another checkout with a dist, N a whole number from 1",
  );
  process.exitCode = 64;
} else if (values.imports !== undefined) await compareImports(values.imports, rounds, positionals);
else process.exitCode = (await compareBuilds(values.compare as string, rounds, positionals)) ? 0 : 1;
