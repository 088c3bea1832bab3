// `npm run bench -- [case...]`: measures, writes one JSON a run below bench/results and, for a run of all cases, the
// table docs/results/bench.md. Fails if a gate does not hold; rates are goals, and only reported.

import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { CASES } from "./cases/cases.ts";
import type { BenchCase } from "./harness/case.ts";
import { commit, machine, otherLoads } from "./harness/machine.ts";
import { asSvg } from "./harness/plot.ts";
import type { CaseReport, Report } from "./harness/report.ts";
import { asLines, asMarkdown, faultsOf } from "./harness/report.ts";
import { installRivals } from "./harness/rivals.ts";
import { quantile } from "./harness/stats.ts";

const RESULTS = "bench/results";
const TABLE = "docs/results/bench.md";

function chosen(names: readonly string[]): readonly BenchCase[] {
  const unknown = names.filter((name) => !CASES.some((one) => one.name === name));
  if (unknown.length > 0) {
    console.error(`no case ${unknown.join(", ")}; there are ${CASES.map(({ name }) => name).join(", ")}`);
    process.exit(64);
  }
  return names.length === 0 ? CASES : CASES.filter(({ name }) => names.includes(name));
}

async function perform(one: BenchCase): Promise<CaseReport> {
  const { name, title, about } = one;
  try {
    return { name, title, about, ...(await one.run()) };
  } catch (error) {
    return { name, title, about, rows: [], checks: [], error: error instanceof Error ? error.message : String(error) };
  }
}

async function main(names: readonly string[]): Promise<void> {
  const cases = chosen(names);
  installRivals();
  const before = { ...commit(), date: new Date().toISOString(), node: process.version, machine: machine() };
  const reports: CaseReport[] = [];
  for (const one of cases) {
    const report = await perform(one);
    reports.push(report);
    console.log(asLines(report).join("\n"));
  }
  const loads = otherLoads();
  const otherLoad = { median: quantile(loads, 0.5), most: Math.max(0, ...loads) };
  const report: Report = { ...before, otherLoad, cases: reports };
  mkdirSync(RESULTS, { recursive: true });
  writeFileSync(join(RESULTS, `${before.date.replaceAll(":", "-")}.json`), JSON.stringify(report, null, 2));
  if (names.length === 0) {
    mkdirSync("docs/results", { recursive: true });
    writeFileSync(TABLE, asMarkdown(report));
    for (const { plot } of reports) {
      if (plot !== undefined) writeFileSync(join(dirname(TABLE), `${plot.name}.svg`), asSvg(plot));
    }
  }
  const faults = faultsOf(report);
  for (const fault of faults) console.error(`FAILED ${fault}`);
  process.exitCode = faults.length === 0 ? 0 : 1;
}

await main(process.argv.slice(2));
