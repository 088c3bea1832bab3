// `npm run test:nodes [major ...]`: the whole suite, as installed and built here, on other Node versions.

import { spawnSync } from "node:child_process";
import type { Counts } from "./test/counts.ts";
import { closingLine, NONE, parseClosingLine, sum } from "./test/counts.ts";

const MAJORS: readonly string[] = ["22", "24", "26"];

function runOn(major: string): Counts {
  console.log(`\n=== Node ${major}`);
  const { stdout, status } = spawnSync("npx", ["-y", "-p", `node@${major}`, "node", "build/scripts/test.js"], {
    stdio: ["ignore", "pipe", "inherit"],
    encoding: "utf8",
    maxBuffer: 64 * 1024 * 1024,
  });
  process.stdout.write(stdout);
  const counts = parseClosingLine(stdout) ?? NONE;
  return status !== 0 && counts.failed === 0 ? { ...counts, failed: 1 } : counts;
}

const majors = process.argv.length > 2 ? process.argv.slice(2) : MAJORS;
const results = majors.map((major) => ({ major, counts: runOn(major) }));
console.log("");
for (const { major, counts } of results) console.log(`Node ${major.padEnd(4)} ${closingLine(counts)}`);
const total = sum(results.map((result) => result.counts));
console.log(closingLine(total));
if (total.failed > 0) process.exitCode = 1;
