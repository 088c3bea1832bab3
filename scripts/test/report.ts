// What a run says at its end: the table of parts, and docs/results/long.md after a long one.

import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { closingLine, sum } from "./counts.ts";
import type { PartResult } from "./run-part.ts";

export function table(results: readonly PartResult[]): string {
  const rows = results.map(({ name, took, budget, counts }) =>
    [
      name.padEnd(14),
      `${took.toFixed(1)} s`.padStart(9),
      `of ${budget} s${took > budget ? ", OVER" : ""}`.padEnd(15),
      closingLine(counts),
    ].join(" "),
  );
  return rows.join("\n");
}

export function writeLongReport(results: readonly PartResult[]): void {
  mkdirSync("docs/results", { recursive: true });
  writeFileSync("docs/results/long.md", longReport(results));
}

function longReport(results: readonly PartResult[]): string {
  const git = (...args: string[]): string => execFileSync("git", args, { encoding: "utf8" }).trim();
  const changed = git("status", "--porcelain", "--untracked-files=no") === "" ? "" : " with local changes";
  const rows = results.map(
    ({ name, took, counts }) =>
      `| ${name} | ${took.toFixed(0)} s | ${counts.passed} | ${counts.failed} | ${counts.skipped} |`,
  );
  const figures = results
    .filter((result) => result.figures.length > 0)
    .map(({ name, figures }) => `\n## ${name}\n\n${figures.map((figure) => `- ${figure}`).join("\n")}\n`);
  return `# The long test run

Written by \`npm run test:long\`. Do not edit.

- Date: ${new Date().toISOString().slice(0, 10)}
- Commit: ${git("rev-parse", "HEAD")}${changed}
- Machine: ${process.platform}, ${cpus().length} cores, Node ${process.versions.node}
- Result: ${closingLine(sum(results.map((result) => result.counts)))}

| Part | Time | Passed | Failed | Skipped |
|---|---|---|---|---|
${rows.join("\n")}
${figures.join("")}`;
}
