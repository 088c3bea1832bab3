// `npm test [part ...]`: builds, runs the parts in order, and shows each part's time against its budget.
// With --long the parts run at full scale and their results go to docs/results/long.md.

import { spawnSync } from "node:child_process";
import { newMark } from "./test/canary.ts";
import { closingLine, NONE, sum } from "./test/counts.ts";
import { BUILD_SECONDS, presentParts, TOTAL_SECONDS } from "./test/parts.ts";
import { table, writeLongReport } from "./test/report.ts";
import type { PartResult } from "./test/run-part.ts";
import { runPart } from "./test/run-part.ts";

const args = process.argv.slice(2);
const long = args.includes("--long");
const wanted = args.filter((arg) => arg !== "--long");
const parts = presentParts();
const unknown = wanted.filter((name) => !parts.some((part) => part.name === name));
if (unknown.length > 0) {
  throw new Error(`no such part: ${unknown.join(", ")} (there is ${parts.map((it) => it.name).join(", ")})`);
}

function build(): PartResult {
  const started = performance.now();
  const shell = process.platform === "win32";
  const faults = ["build", "compile"].flatMap((script) => {
    const { status } = spawnSync("npm", ["run", "--silent", script], { stdio: "inherit", shell });
    return status === 0 ? [] : [`npm run ${script} failed`];
  });
  const took = (performance.now() - started) / 1000;
  const counts = { ...NONE, failed: faults.length };
  return { name: "build", counts, took, budget: BUILD_SECONDS, faults, failures: [], figures: [] };
}

const mark = newMark();
const results: PartResult[] = [build()];
const built = results.every((result) => result.faults.length === 0);
for (const part of built ? parts : []) {
  if (wanted.length > 0 && !wanted.includes(part.name)) continue;
  console.log(`\n--- ${part.name}`);
  results.push(await runPart(part, long, mark));
}

const took = results.reduce((total, result) => total + result.took, 0);
const counts = sum(results.map((result) => result.counts));
const faults = results.flatMap((result) => result.faults);
if (long)
  writeLongReport(
    results.slice(1),
    parts.map(({ name }) => name),
  );

console.log(`\n${table(results)}`);
if (!long)
  console.log(`all parts      ${took.toFixed(1)} s of ${TOTAL_SECONDS} s${took > TOTAL_SECONDS ? ", OVER" : ""}`);
for (const failure of results.flatMap((result) => result.failures)) console.log(failure);
for (const fault of faults) console.log(`FAILED ${fault}`);
console.log(closingLine(counts));
if (counts.failed > 0 || faults.length > 0) process.exitCode = 1;
