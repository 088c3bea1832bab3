// `npm test [part ...]`: builds, runs the parts in order, and shows each part's time against its budget.
// With --long the parts run at full scale and their results go to docs/results/long.md.

import { spawnSync } from "node:child_process";
import { formatTable, writeLongReport } from "./test/report.ts";
import type { SuiteResult } from "./test/run-suite.ts";
import { runSuite } from "./test/run-suite.ts";
import { createMark } from "./test/secret-scan.ts";
import { BUILD_SECONDS, INSTALL_SECONDS, selectSuites, TOTAL_SECONDS } from "./test/suites.ts";
import { formatSummary, NO_TESTS, sumCounts } from "./test/summary.ts";

const INSTALLER = "build/test/support/setup/install.js";

const args = process.argv.slice(2);
const isLongRun = args.includes("--long");
const requestedNames = args.filter((arg) => arg !== "--long");
const suites = selectSuites();
const unknownNames = requestedNames.filter((name) => !suites.some((suite) => suite.name === name));
if (unknownNames.length > 0) {
  throw new Error(
    `no such part: ${unknownNames.join(", ")} (there is ${suites.map((suite) => suite.name).join(", ")})`,
  );
}

function build(): SuiteResult {
  const started = performance.now();
  const shell = process.platform === "win32";
  const faults = ["build", "compile"].flatMap((script) => {
    const { status } = spawnSync("npm", ["run", "--silent", script], { stdio: "inherit", shell });
    return status === 0 ? [] : [`npm run ${script} failed`];
  });
  const seconds = (performance.now() - started) / 1000;
  return preparation("build", seconds, BUILD_SECONDS, faults);
}

/** What is not installed with the project: servers, and packages that only some suites need. Each step has its own bound. */
function install(names: readonly string[]): SuiteResult {
  const started = performance.now();
  const env = { ...process.env, ...(isLongRun && { HOLDFAST_LONG: "1" }) };
  const { status } = spawnSync(process.execPath, [INSTALLER, ...names], { stdio: "inherit", env });
  const seconds = (performance.now() - started) / 1000;
  const faults = status === 0 ? [] : ["what the parts require could not be installed"];
  return preparation("install", seconds, INSTALL_SECONDS, faults);
}

function preparation(name: string, seconds: number, budgetSeconds: number, faults: readonly string[]): SuiteResult {
  const counts = { ...NO_TESTS, failed: faults.length };
  return { name, counts, seconds, budgetSeconds, faults, failures: [], figures: [] };
}

const mark = createMark();
const parts = suites.filter(({ name }) => requestedNames.length === 0 || requestedNames.includes(name));
const results: SuiteResult[] = [build()];
const built = results.every((result) => result.faults.length === 0);
if (built) results.push(install(parts.map(({ name }) => name)));
for (const part of built ? parts : []) {
  console.log(`\n--- ${part.name}`);
  results.push(await runSuite(part, isLongRun, mark));
}

const totalSeconds = results.reduce((total, result) => total + result.seconds, 0);
const counts = sumCounts(results.map((result) => result.counts));
const faults = results.flatMap((result) => result.faults);
if (isLongRun)
  writeLongReport(
    results.filter(({ name }) => suites.some((suite) => suite.name === name)),
    suites.map(({ name }) => name),
  );

console.log(`\n${formatTable(results)}`);
if (!isLongRun)
  console.log(
    `all parts      ${totalSeconds.toFixed(1)} s of ${TOTAL_SECONDS} s${totalSeconds > TOTAL_SECONDS ? ", OVER" : ""}`,
  );
for (const failure of results.flatMap((result) => result.failures)) console.log(failure);
for (const fault of faults) console.log(`FAILED ${fault}`);
console.log(formatSummary(counts));
if (counts.failed > 0 || faults.length > 0) process.exitCode = 1;
