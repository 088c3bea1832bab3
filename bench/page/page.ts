/** docs/benchmarks.md and its pictures, from the cases and what was measured of them last. */

import type { BenchCase } from "../harness/bench-case.ts";
import { THEMES } from "../harness/bench-case.ts";
import { renderPlot } from "../harness/plot.ts";
import type { SavedCase } from "../harness/report.ts";
import { failedGates, maxRounds, renderChecks, renderTable } from "../harness/report.ts";
import { renderBarChart, selectBars } from "./bar-chart.ts";
import { describeMethod } from "./method.ts";
import { findWeaknesses } from "./weaknesses.ts";

export const PAGE_FILE = "docs/benchmarks.md";
/** Where the pictures are, from the root. */
export const CHARTS_FOLDER = "docs/results/charts";

export interface RenderedPage {
  readonly text: string;
  /** By their paths from the root. */
  readonly pictures: ReadonlyMap<string, string>;
}

/** A case with a section on the page, and its results. */
interface Section {
  readonly benchCase: BenchCase & { readonly page: NonNullable<BenchCase["page"]> };
  readonly saved: SavedCase;
}

export function renderPage(cases: readonly BenchCase[], savedCases: readonly SavedCase[]): RenderedPage {
  const sections = cases.flatMap((benchCase): Section[] => {
    const saved = savedCases.find(({ name }) => name === benchCase.name);
    const { page } = benchCase;
    return page === undefined || saved === undefined ? [] : [{ benchCase: { ...benchCase, page }, saved }];
  });
  const pictures = new Map(sections.flatMap(renderPictures).map(({ path, svg }) => [path, svg]));
  const lines = [
    "# Benchmarks",
    "",
    "<!-- Written by `npm run bench -- --page`. Do not edit: change bench/page or the case, and write it again. -->",
    "",
    "What a lock costs with Holdfast, and what it costs with the other lock libraries for Node.js, measured side by side on one machine. " +
      "Figures of another machine will differ: **read the ratios**. Each chart has a blue bar for Holdfast, grey bars for the others with " +
      "their versions, and outlines for baselines, which show what the way to the store costs when nothing is promised.",
    "",
    `${summarize(savedCases)} See [what we are worse at](#what-we-are-worse-at), [how it is measured](#how-it-is-measured) and [all goals](#goals).`,
    "[Performance](guide/performance.md) in the guide says what to do about the cost of a lock.",
    ...THEMES.flatMap((theme) => renderTheme(theme, sections)),
    "",
    "## What we are worse at",
    "",
    ...renderWeaknesses(cases, savedCases),
    "",
    ...describeMethod(savedCases),
    "",
    "## Goals",
    "",
    "Each case has goals, which are only reported, and gates, without which its rates would mean nothing: the number of commands, callers that " +
      "got nothing, how evenly callers were served, overlaps. A gate must hold in every round, or the command fails.",
    "",
    ...renderChecks(
      savedCases.map((saved) => ({ ...saved, checks: saved.checks.filter(({ kind }) => kind === "goal") })),
    ),
  ];
  return { text: `${lines.join("\n")}\n`, pictures };
}

function summarize(savedCases: readonly SavedCase[]): string {
  const checks = savedCases.flatMap((saved) => saved.checks);
  const goals = checks.filter(({ kind }) => kind === "goal");
  const gates = checks.filter(({ kind }) => kind === "gate");
  const failed = failedGates({ cases: savedCases }).length;
  const holding = failed === 0 ? `all ${gates.length} gates hold` : `${failed} of ${gates.length} gates do not hold`;
  return `Of ${goals.length} goals ${goals.filter(({ met }) => met).length} are met, and ${holding}.`;
}

/** The order of the stores within a theme: what most readers compare comes first. */
const STORES: readonly ((name: string) => boolean)[] = [
  (name) => /^(?:redis|cold)-/.test(name),
  (name) => !/^(?:redis|cold|zookeeper|sql)-/.test(name),
  (name) => name.startsWith("zookeeper-"),
  (name) => name.startsWith("sql-"),
];

function renderTheme(theme: string, sections: readonly Section[]): string[] {
  const own = STORES.flatMap((isOf) =>
    sections.filter(({ benchCase: { name, page } }) => page.theme === theme && isOf(name)),
  );
  return own.length === 0 ? [] : ["", `## ${theme}`, ...own.flatMap(renderSection)];
}

function renderSection(section: Section): string[] {
  const { benchCase, saved } = section;
  const { rows, about, error, environment } = saved;
  const { commit, changed, date } = environment;
  const images = renderPictures(section).map(({ path, title }) => `![${title}](${path.replace("docs/", "")})`);
  return [
    "",
    `### ${benchCase.title}`,
    "",
    benchCase.page.measures,
    ...(error === undefined ? [] : ["", `**Could not be run to its end:** ${error}`]),
    ...images.flatMap((image) => ["", image]),
    "",
    "<details><summary>All figures</summary>",
    "",
    about,
    "",
    ...renderTable(rows),
    "",
    "</details>",
    "",
    `Repeat it: \`npm run bench -- ${benchCase.name}\`. Measured ${date.slice(0, 10)} at commit ${commit}` +
      `${changed ? " with changes" : ""}${describeRounds(saved)}.`,
  ];
}

function describeRounds(saved: SavedCase): string {
  const rounds = maxRounds([saved]);
  return rounds > 1 ? `, medians of ${rounds} rounds` : "";
}

interface Picture {
  readonly path: string;
  readonly title: string;
  readonly svg: string;
}

/** A chart of a column that no row has is left out. */
function renderPictures({ benchCase, saved }: Section): Picture[] {
  const { charts } = benchCase.page;
  const bars = charts.flatMap((chart, index): Picture[] => {
    const chartBars = selectBars(chart, saved.rows, saved.environment.versions);
    const suffix = charts.length === 1 ? "" : `-${index + 1}`;
    const path = `${CHARTS_FOLDER}/${benchCase.name}${suffix}.svg`;
    const title = chart.title.replaceAll("`", "");
    return chartBars.length === 0 ? [] : [{ path, title, svg: renderBarChart(chart, chartBars) }];
  });
  const { plot } = saved;
  if (plot === undefined) return bars;
  return [...bars, { path: `docs/results/${plot.name}.svg`, title: plot.title, svg: renderPlot(plot) }];
}

function renderWeaknesses(cases: readonly BenchCase[], savedCases: readonly SavedCase[]): string[] {
  const lines = cases.flatMap((benchCase) => {
    const saved = savedCases.find(({ name }) => name === benchCase.name);
    const weaknesses = saved === undefined ? [] : findWeaknesses(benchCase, saved);
    const reasons = [...new Set(weaknesses.map(({ reason }) => reason))];
    return reasons.map((reason) => {
      const findings = weaknesses.filter((weakness) => weakness.reason === reason).map(({ finding }) => finding);
      return `| ${benchCase.title} | ${findings.join("<br>")} | ${reason} |`;
    });
  });
  if (lines.length === 0) return ["No goal is missed, and no rival is ahead."];
  return [
    "Every goal that is missed, and every chart above in which a rival is ahead of a bar of Holdfast by more than 3 %. A goal is a ratio to a " +
      "baseline or to the best rival, if nothing else is said.",
    "",
    "| Case | What | Why |",
    "|---|---|---|",
    ...lines,
  ];
}
