/**
 * docs/results.md: of each case that has a headline, its figures as they were measured last. It is a table to read and
 * the only source of docs/benchmarks.md; the runs themselves are files outside of the tree.
 */

import type { BenchCase } from "../harness/bench-case.ts";
import type { CaseReport, Report } from "../harness/report.ts";
import { formatSpread } from "../harness/report.ts";
import type { Versions } from "../harness/versions.ts";

/** One implementation's figures, as they stand in the table: "6,021 (5,877..6,503)". */
interface ResultRow {
  readonly name: string;
  readonly cells: readonly string[];
}

export interface CaseResult {
  readonly title: string;
  /** As on the command line. */
  readonly name: string;
  readonly date: string;
  readonly commit: string;
  readonly about: string;
  readonly columns: readonly string[];
  readonly rows: readonly ResultRow[];
}

export interface Results {
  /** The machine, Node.js, the stores and the other libraries. */
  readonly versions: Versions;
  readonly cases: readonly CaseResult[];
  /** Written by hand: what the long runs of the tests found. */
  readonly longRuns: string;
}

const INTRODUCTION = `# Results

What was measured last. The benches write their part (\`npm run bench -- --page FILE\`), and [benchmarks](benchmarks.md) is made of
it; [the long test runs](#long-test-runs) are entered by hand. Each figure is the median of the rounds, with the least and the most of
them. The benches use no seed: their random delays are those of the libraries. The results of a run with all its figures are a file
below \`bench/results\`, which a release keeps.`;
const LONG_RUNS = "## Long test runs\n";
const COMMAND = /^`npm run bench -- (\S+)`, (\S+), commit (.+)\.$/;

/** The figures of these cases in a run take the place of earlier ones; cases that are gone are dropped. */
export function addRun(results: Results, run: Report, cases: readonly BenchCase[]): Results {
  const byName = new Map(results.cases.map((result) => [result.name, result]));
  const versions = {
    ...results.versions,
    machine: run.machine,
    "Node.js": run.node.replace(/^v/, ""),
    ...run.versions,
  };
  for (const report of run.cases) {
    const result = toResult(report, run, cases);
    if (result !== null) byName.set(report.name, result);
  }
  return { ...results, versions, cases: cases.flatMap(({ name }) => byName.get(name) ?? []) };
}

/** Null without a headline, and of a case that could not be run to its end. */
function toResult(report: CaseReport, run: Report, cases: readonly BenchCase[]): CaseResult | null {
  const { name, title, about, rows, error } = report;
  const columns = cases.find((benchCase) => benchCase.name === name)?.headline;
  if (columns === undefined || error !== undefined) return null;
  const commit = `${run.commit}${run.changed ? " with changes" : ""}`;
  return {
    title: title.replaceAll("`", ""),
    name,
    date: run.date.slice(0, 10),
    commit,
    about,
    columns,
    rows: rows
      .filter(({ figures }) => columns.some((column) => figures[column] !== undefined))
      .map(({ name, figures }) => ({
        name,
        cells: columns.map((column) => (figures[column] === undefined ? "-" : formatSpread(figures[column]))),
      })),
  };
}

export function renderResults({ versions, cases, longRuns }: Results): string {
  return `${[
    INTRODUCTION,
    "",
    "## Machine and versions",
    "",
    ...Object.entries(versions).map(([name, version]) => `- ${name}: ${version}`),
    ...cases.flatMap(renderCase),
  ].join("\n")}\n\n${LONG_RUNS}${longRuns}`;
}

function renderCase({ title, name, date, commit, about, columns, rows }: CaseResult): string[] {
  return [
    "",
    `## ${title}`,
    "",
    `\`npm run bench -- ${name}\`, ${date}, commit ${commit}.`,
    "",
    about,
    "",
    `| | ${columns.join(" | ")} |`,
    `|---|${columns.map(() => "---|").join("")}`,
    ...rows.map(({ name, cells }) => `| ${name} | ${cells.join(" | ")} |`),
  ];
}

export function parseResults(text: string): Results {
  const [benches = "", longRuns = ""] = text.split(`\n${LONG_RUNS}`);
  const [, versions = "", ...cases] = benches.split("\n## ");
  return {
    versions: Object.fromEntries(
      [...versions.matchAll(/^- (.+?): (.+)$/gm)].map(([, name, version]) => [name, version]),
    ),
    cases: cases.map(parseCase),
    longRuns,
  };
}

function parseCase(section: string): CaseResult {
  const [title = "", , command = "", , about = "", , header = "", , ...rows] = section.trimEnd().split("\n");
  const found = COMMAND.exec(command);
  if (found === null) throw new Error(`"${title}" of the results names no command, date and commit: ${command}`);
  const [, name = "", date = "", commit = ""] = found;
  const [, ...columns] = parseCells(header);
  return {
    title,
    name,
    date,
    commit,
    about,
    columns,
    rows: rows.map((row) => {
      const [name = "", ...cells] = parseCells(row);
      return { name, cells };
    }),
  };
}

function parseCells(line: string): string[] {
  return line
    .split("|")
    .slice(1, -1)
    .map((cell) => cell.trim());
}

/** The median; NaN where there is none. */
export function parseFigure(cell: string | undefined): number {
  return Number.parseFloat((cell ?? "").replaceAll(",", ""));
}
