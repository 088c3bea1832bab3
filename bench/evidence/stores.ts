/** Holdfast's own runs: a line for each store. */

import { FAULT_NAMES } from "../../src/torture/faults.ts";
import { formatCount } from "../../src/torture/report/format.ts";
import { quantile } from "../harness/stats.ts";
import { formatDays, formatMs, formatPairs, formatSpan, formatViolations, renderTable } from "./format.ts";
import { crashGoalOf, grantGoalOf, noticeGoalOf } from "./goals.ts";
import type { DatedRow, Totals } from "./results.ts";
import { distinct, sumRows } from "./results.ts";

/** Of the runs that were not ok: the files have all. */
const MAX_OTHERS = 8;

interface StoreTotals extends Totals {
  /** As `--start` has it. */
  readonly store: string;
}

function sumByStore(rows: readonly DatedRow[]): readonly StoreTotals[] {
  return distinct(rows.map(({ store }) => store)).map((store) => ({
    store,
    ...sumRows(rows.filter((row) => row.store === store)),
  }));
}

/** "**redis** (Redis 7.0.15)"; a url has a port of its own in each run, and no version. */
function nameOf({ store, storeNames }: StoreTotals): string {
  const versions = storeNames.filter((name) => !name.includes(":"));
  return `**${store}**${versions.length === 0 ? "" : ` (${versions.join(", ")})`}`;
}

export function renderTotals(rows: readonly DatedRow[]): string[] {
  const totals = sumRows(rows);
  const { ok, violated, unknown, failed } = totals.verdicts;
  const verdicts = [
    `${formatCount(ok)} ok`,
    ...(violated > 0 ? [`**${formatCount(violated)} violated**`] : []),
    ...(unknown > 0 ? [`${formatCount(unknown)} unknown`] : []),
    ...(failed > 0 ? [`${formatCount(failed)} without a result`] : []),
  ];
  return [
    `${formatDays(totals.days)}: ${formatCount(totals.runs)} runs with ${formatSpan(totals.seconds)} of faults, of which ` +
      `${formatCount(totals.effectiveFaults)} struck a process that held a lock or waited for one. ${formatCount(totals.grants)} grants, ` +
      `${formatCount(totals.sections)} sections under a lock. Verdicts: ${verdicts.join(", ")}.`,
    "",
    `- pairs of holders at once: **${formatPairs(totals)}**`,
    `- tokens that did not rise: **${formatCount(totals.tokenRegressions)}**`,
    `- late writes that a register with tokens accepted: **${formatCount(totals.staleWritesAccepted)}**; it refused ${formatCount(totals.staleWritesRefused)}`,
    `- late writes that a register without tokens accepted, as it does all: ${formatCount(totals.staleWritesUnfenced)}`,
  ];
}

export function renderAnswer(rows: readonly DatedRow[]): string[] {
  return renderTable(
    [
      "Store",
      "Runs ok",
      "Faults that struck",
      "Grants, of the goal",
      "Sections",
      "Pairs of holders at once",
      "Tokens that did not rise",
      "Late writes refused, accepted",
      "Left after two leases",
    ],
    sumByStore(rows).map((totals) => [
      nameOf(totals),
      `${formatCount(totals.verdicts.ok)} of ${formatCount(totals.runs)}`,
      formatCount(totals.effectiveFaults),
      `${formatCount(totals.grants)} of ${formatCount(grantGoalOf(totals.store))}`,
      formatCount(totals.sections),
      formatPairs(totals),
      formatCount(totals.tokenRegressions),
      `${formatCount(totals.staleWritesRefused)}, ${formatCount(totals.staleWritesAccepted)}`,
      totals.leftovers === null ? "not known" : formatCount(totals.leftovers),
    ]),
  );
}

export function renderCrashes(rows: readonly DatedRow[]): string[] {
  return renderTable(
    [
      "Store",
      "Lease",
      "Next holder after a crash, p99 (crashes)",
      "Goal",
      "Locks lost",
      "Latest notice (goal)",
      "Longest wait",
      "Overtaken in strict order",
    ],
    sumByStore(rows).map((totals) => {
      const { store, leasesMs, afterCrashMs, losses, latestNoticeMs, longestWaitMs, inversions } = totals;
      const longestLeaseMs = Math.max(0, ...leasesMs);
      const goal = crashGoalOf(store, longestLeaseMs);
      const p99 = quantile(afterCrashMs, 0.99);
      return [
        `**${store}**`,
        leasesMs.map(formatMs).join(", "),
        afterCrashMs.length === 0 ? "–" : `${formatGoal(p99, goal.ms)} (${formatCount(afterCrashMs.length)})`,
        `${goal.words}${goal.words === formatMs(goal.ms) ? "" : `: ${formatMs(goal.ms)}`}`,
        formatCount(losses),
        losses === 0
          ? "–"
          : `${formatGoal(latestNoticeMs, noticeGoalOf(longestLeaseMs))} (${formatMs(noticeGoalOf(longestLeaseMs))})`,
        formatMs(longestWaitMs),
        formatCount(inversions),
      ];
    }),
  );
}

/** A goal that was missed is bold, so that no reader has to compare. */
function formatGoal(ms: number, goalMs: number): string {
  return ms > goalMs ? `**${formatMs(ms)}**` : formatMs(ms);
}

export function renderFaults(rows: readonly DatedRow[]): string[] {
  return renderTable(
    [
      "Store",
      "Dates",
      "Commits",
      "Time",
      ...FAULT_NAMES.map((name) => `\`${name}\``),
      "Operations that it does not have",
    ],
    sumByStore(rows).map(({ store, days, commits, seconds, faults, notTested }) => [
      `**${store}**`,
      formatDays(days),
      commits.map((commit) => `\`${commit}\``).join(", "),
      formatSpan(seconds),
      ...FAULT_NAMES.map((name) => (faults[name] === undefined ? "–" : formatCount(faults[name]))),
      Object.keys(notTested)
        .filter((name) => !(FAULT_NAMES as readonly string[]).includes(name))
        .join(", ") || "–",
    ]),
    3,
  );
}

/** The runs whose verdict is not ok: those that were violated first, the latest of each kind first. */
export function renderOthers(rows: readonly DatedRow[]): string[] {
  const byDate = [...rows].reverse();
  const violated = byDate.filter((row) => !("error" in row) && row.verdict === "violated");
  const failed = byDate.filter((row) => "error" in row);
  const unknown = byDate.filter((row) => !("error" in row) && row.verdict === "unknown");
  const others = [...violated, ...failed, ...unknown];
  if (others.length === 0) return ["None."];
  const left = others.length - MAX_OTHERS;
  return [
    ...renderTable(
      ["Date, commit", "Command", "Result"],
      others
        .slice(0, MAX_OTHERS)
        .map((row) => [`${row.date.slice(0, 10)}, \`${row.commit}\``, `\`${row.command}\``, describe(row)]),
      3,
    ),
    ...(left > 0 ? ["", `${formatCount(left)} more of them are in the files.`] : []),
  ];
}

function describe(row: DatedRow): string {
  if ("error" in row) return `no result: ${row.error.replace(/[\n|]/g, " ")}`;
  return [row.verdict, formatViolations(row.violations), ...row.reasons].join("; ").replace(/[\n|]/g, " ");
}
