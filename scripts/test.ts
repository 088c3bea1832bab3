// `npm test [suite ...]`: builds, runs the suites in order, and shows how long each took.
// With --long they run at full scale, and their figures are printed at the end; docs/results.md keeps those of the last long run.

import { spawnSync } from "node:child_process";
import type { SuiteResult } from "./test/run-suite.ts";
import { runSuite } from "./test/run-suite.ts";
import { createMark } from "./test/secret-scan.ts";
import { selectSuites } from "./test/suites.ts";
import { formatSummary, NO_TESTS, sumCounts } from "./test/summary.ts";

const INSTALLER = "build/test/support/setup/install.js";

const args = process.argv.slice(2);
const isLongRun = args.includes("--long");
const requestedNames = args.filter((arg) => arg !== "--long");
const suites = selectSuites();
const unknownNames = requestedNames.filter((name) => !suites.some((suite) => suite.name === name));
if (unknownNames.length > 0) {
  throw new Error(
    `no such suite: ${unknownNames.join(", ")} (there is ${suites.map((suite) => suite.name).join(", ")})`,
  );
}

function build(): SuiteResult {
  const started = performance.now();
  const shell = process.platform === "win32";
  const faults = ["build", "compile"].flatMap((script) => {
    const { status } = spawnSync("npm", ["run", "--silent", script], { stdio: "inherit", shell });
    return status === 0 ? [] : [`npm run ${script} failed`];
  });
  return preparation("build", started, faults);
}

/** What is not installed with the project: servers, and packages that only some suites need. Each step has its own bound. */
function install(names: readonly string[]): SuiteResult {
  const started = performance.now();
  const env = { ...process.env, ...(isLongRun && { HOLDFAST_LONG: "1" }) };
  const { status } = spawnSync(process.execPath, [INSTALLER, ...names], { stdio: "inherit", env });
  const faults = status === 0 ? [] : ["what the suites require could not be installed"];
  return preparation("install", started, faults);
}

function preparation(name: string, started: number, faults: readonly string[]): SuiteResult {
  const seconds = (performance.now() - started) / 1000;
  const counts = { ...NO_TESTS, failed: faults.length };
  return { name, counts, seconds, faults, failures: [], figures: [] };
}

function formatRow({ name, seconds, counts }: SuiteResult): string {
  return `${name.padEnd(15)} ${seconds.toFixed(1).padStart(7)} s  ${formatSummary(counts)}`;
}

const mark = createMark();
const requestedSuites = suites.filter(({ name }) => requestedNames.length === 0 || requestedNames.includes(name));
const results: SuiteResult[] = [build()];
const built = results.every((result) => result.faults.length === 0);
if (built) results.push(install(requestedSuites.map(({ name }) => name)));
for (const suite of built ? requestedSuites : []) {
  console.log(`\n--- ${suite.name}`);
  results.push(await runSuite(suite, isLongRun, mark));
}

const totalSeconds = results.reduce((total, result) => total + result.seconds, 0);
const counts = sumCounts(results.map((result) => result.counts));
const faults = results.flatMap((result) => result.faults);
console.log(`\n${results.map(formatRow).join("\n")}`);
console.log(`${"all suites".padEnd(15)} ${totalSeconds.toFixed(1).padStart(7)} s`);
for (const { name, figures } of isLongRun ? results : []) {
  for (const figure of figures) console.log(`${name}: ${figure}`);
}
for (const failure of results.flatMap((result) => result.failures)) console.log(failure);
for (const fault of faults) console.log(`FAILED ${fault}`);
console.log(formatSummary(counts));
if (counts.failed > 0 || faults.length > 0) process.exitCode = 1;
