// `npm run test:nodes [major ...]`: the whole suite, as installed and built here, on other Node versions.

import { spawnSync } from "node:child_process";
import type { TestCounts } from "./test/summary.ts";
import { formatSummary, NO_TESTS, parseSummary, sumCounts } from "./test/summary.ts";

const NODE_MAJORS: readonly string[] = ["22", "24", "26"];

function runOnNode(major: string): TestCounts {
  console.log(`\n=== Node ${major}`);
  const { stdout, status } = spawnSync("npx", ["-y", "-p", `node@${major}`, "node", "build/scripts/test.js"], {
    stdio: ["ignore", "pipe", "inherit"],
    encoding: "utf8",
    maxBuffer: 64 * 1024 * 1024,
  });
  process.stdout.write(stdout);
  const counts = parseSummary(stdout) ?? NO_TESTS;
  return status !== 0 && counts.failed === 0 ? { ...counts, failed: 1 } : counts;
}

const majors = process.argv.length > 2 ? process.argv.slice(2) : NODE_MAJORS;
const results = majors.map((major) => ({ major, counts: runOnNode(major) }));
console.log("");
for (const { major, counts } of results) console.log(`Node ${major.padEnd(4)} ${formatSummary(counts)}`);
const total = sumCounts(results.map((result) => result.counts));
console.log(formatSummary(total));
if (total.failed > 0) process.exitCode = 1;
