// `npm run bench -- --compare BUILD [--rounds N] [SUBJECT...]`: see compare/compare.ts.
// `npm run bench -- [--quick] [case or group...]`: measures, writes one JSON a run below bench/results and, for every group of which
// all cases were run, its table in docs/results. Fails if a gate does not hold; rates are goals, and only reported.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { CASES } from "./cases/cases.ts";
import { compareBuilds } from "./compare/compare.ts";
import type { BenchCase } from "./harness/bench-case.ts";
import { describeMachine, otherLoads, readCommit } from "./harness/machine.ts";
import { renderSvg } from "./harness/plot.ts";
import { IS_QUICK_RUN } from "./harness/quick-run.ts";
import type { CaseReport, Report } from "./harness/report.ts";
import { failedGates, renderLines, renderMarkdown } from "./harness/report.ts";
import { quantile } from "./harness/stats.ts";
import { installThirdParty } from "./harness/third-party.ts";

const RESULTS = "bench/results";
const TABLES = "docs/results";
/** Cases whose names begin so have a table of their own, and are chosen together by this name. */
const GROUPS = ["redis", "sql", "zookeeper"];

function findGroup({ name }: Pick<BenchCase, "name">): string {
  return GROUPS.find((group) => name.startsWith(`${group}-`)) ?? "";
}

/** By their names, or by the first words of them: "sql-uncontended" is that case on all databases. */
function selectCases(names: readonly string[]): readonly BenchCase[] {
  const isNamedBy = (benchCase: BenchCase, name: string): boolean =>
    benchCase.name === name || benchCase.name.startsWith(`${name}-`);
  const isNamed = (benchCase: BenchCase): boolean => names.some((name) => isNamedBy(benchCase, name));
  const unknown = names.filter((name) => !CASES.some((benchCase) => isNamedBy(benchCase, name)));
  if (unknown.length > 0) {
    const knownNames = [...GROUPS, ...CASES.map(({ name }) => name)];
    console.error(`no case ${unknown.join(", ")}; there are ${knownNames.join(", ")}`);
    process.exit(64);
  }
  return names.length === 0 ? CASES : CASES.filter(isNamed);
}

/** For each group of which every case is in the report. */
function writeTables(report: Report): void {
  mkdirSync(TABLES, { recursive: true });
  for (const group of ["", ...GROUPS]) {
    const cases = report.cases.filter((caseReport) => findGroup(caseReport) === group);
    if (cases.length === 0 || cases.length < CASES.filter((benchCase) => findGroup(benchCase) === group).length)
      continue;
    writeFileSync(join(TABLES, group === "" ? "bench.md" : `bench-${group}.md`), renderMarkdown({ ...report, cases }));
    for (const { plot } of cases)
      if (plot !== undefined) writeFileSync(join(TABLES, `${plot.name}.svg`), renderSvg(plot));
  }
}

async function runCase(benchCase: BenchCase): Promise<CaseReport> {
  const { name, title, about } = benchCase;
  try {
    return { name, title, about, ...(await benchCase.run()) };
  } catch (error) {
    return { name, title, about, rows: [], checks: [], error: error instanceof Error ? error.message : String(error) };
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
  const loads = otherLoads();
  const otherLoad = { median: quantile(loads, 0.5), most: Math.max(0, ...loads) };
  const report: Report = { ...before, otherLoad, cases: reports };
  mkdirSync(RESULTS, { recursive: true });
  writeFileSync(join(RESULTS, `${before.date.replaceAll(":", "-")}.json`), JSON.stringify(report, null, 2));
  if (!IS_QUICK_RUN) writeTables(report);
  const faults = failedGates(report);
  for (const fault of faults) console.error(`FAILED ${fault}`);
  process.exitCode = faults.length === 0 ? 0 : 1;
}

const { values, positionals } = parseArgs({
  // --quick: see harness/quick-run.ts
  options: { quick: { type: "boolean" }, compare: { type: "string" }, rounds: { type: "string", default: "15" } },
  allowPositionals: true,
});
const rounds = Number(values.rounds);
if (values.compare === undefined) await main(positionals);
else if (!Number.isInteger(rounds) || rounds < 1) {
  console.error(
    "--compare BUILD [--rounds N] [SUBJECT...]: BUILD is another checkout with a dist, N a whole number from 1",
  );
  process.exitCode = 64;
} else process.exitCode = (await compareBuilds(values.compare, rounds, positionals)) ? 0 : 1;
