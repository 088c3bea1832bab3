// What a run says at its end: the table of parts, and docs/results/long.md after a long one.

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import type { SuiteResult } from "./run-suite.ts";
import type { TestCounts } from "./summary.ts";
import { formatSummary, sumCounts } from "./summary.ts";

const LONG_JSON = "docs/results/long.json";
const LONG_PAGE = "docs/results/long.md";

/** What is kept of a part's last long run. */
type LongResult = Pick<SuiteResult, "name" | "counts" | "figures"> & {
  readonly date: string;
  readonly commit: string;
  readonly machine: string;
  readonly seconds: number;
};

export function formatTable(results: readonly SuiteResult[]): string {
  const rows = results.map(({ name, seconds, budgetSeconds, counts }) =>
    [
      name.padEnd(14),
      `${seconds.toFixed(1)} s`.padStart(9),
      `of ${budgetSeconds} s${seconds > budgetSeconds ? ", OVER" : ""}`.padEnd(15),
      formatSummary(counts),
    ].join(" "),
  );
  return rows.join("\n");
}

/** Keeps the results of these parts beside those of the parts that were run another day, and writes the page. */
export function writeLongReport(results: readonly SuiteResult[], order: readonly string[]): void {
  const kept = new Map(readLongResults().map((result) => [result.name, result]));
  const about = { date: new Date().toISOString().slice(0, 10), commit: describeCommit(), machine: describeMachine() };
  for (const { name, counts, figures, seconds } of results) {
    kept.set(name, { name, ...about, seconds: Math.round(seconds), counts, figures });
  }
  const all = order.flatMap((name) => kept.get(name) ?? []);
  mkdirSync("docs/results", { recursive: true });
  writeFileSync(LONG_JSON, `${JSON.stringify(all, null, 2)}\n`);
  writeFileSync(LONG_PAGE, renderLongPage(all, order));
}

function readLongResults(): LongResult[] {
  return existsSync(LONG_JSON) ? (JSON.parse(readFileSync(LONG_JSON, "utf8")) as LongResult[]) : [];
}

function describeCommit(): string {
  const git = (...args: string[]): string => execFileSync("git", args, { encoding: "utf8" }).trim();
  const changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "test") !== "";
  return `${git("rev-parse", "--short=12", "HEAD")}${changed ? " with local changes" : ""}`;
}

function describeMachine(): string {
  return `${process.platform}, ${cpus().length} cores, Node ${process.versions.node}`;
}

function renderLongPage(results: readonly LongResult[], order: readonly string[]): string {
  const rows = results.map(({ name, date, commit, machine, seconds, counts }) => {
    const cells = [name, date, commit, machine, `${seconds} s`, counts.passed, counts.failed, counts.skipped];
    return `| ${cells.join(" | ")} |`;
  });
  const missing = order.filter((name) => !results.some((result) => result.name === name));
  const figures = results
    .filter((result) => result.figures.length > 0)
    .map(({ name, figures }) => `\n## ${name}\n\n${figures.map((figure) => `- ${figure}`).join("\n")}\n`);
  return `# The long test run

Written by \`npm run test:long [part ...]\`: each part's last run at full scale. Do not edit.

| Part | Date | Commit | Machine | Time | Passed | Failed | Skipped |
|---|---|---|---|---|---|---|---|
${rows.join("\n")}

In all: ${formatSummary(sumCounts(results.map(({ counts }): TestCounts => counts)))}.${missing.length === 0 ? "" : ` Not run yet: ${missing.join(", ")}.`}
${figures.join("")}`;
}
