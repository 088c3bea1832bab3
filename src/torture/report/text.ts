/** What a person reads of a run: one sentence, and one table. */

import type { Figures, Verdict } from "../checker.ts";
import type { History } from "../operations.ts";
import { formatCount, formatMs } from "./format.ts";

/** The result in one sentence. */
export function formatSentence({ header }: History, { verdict, figures, reasons, violations }: Verdict): string {
  const faults = Object.values(figures.faults).reduce((sum, count) => sum + count, 0);
  const subject = header.subject.startsWith("Holdfast") ? "" : `${header.subject} on `;
  const start = `${subject}${header.store}, ${header.seconds} s, ${faults} faults, ${formatCount(figures.holds)} holds`;
  const result =
    `${figures.doubleHolds} double grants, ${figures.staleWritesAccepted} stale writes accepted with tokens, ` +
    `${figures.staleWritesUnfenced} accepted without`;
  if (verdict === "ok") return `${start}: ${result}`;
  if (verdict === "unknown") return `${start}: unknown, because ${reasons.join(", and ")}`;
  return `${start}: VIOLATED, ${violations.length} times: ${result}`;
}

export type Row = readonly [what: string, value: string];

export function tableOf(figures: Figures): Row[] {
  const faults = Object.entries(figures.faults).map(([name, count]) => `${count} ${name}`);
  return [
    ["requests, holds, sections", [figures.requests, figures.holds, figures.sections].map(formatCount).join(", ")],
    ["grants by the store", figures.storeGrants === null ? "not known" : formatCount(figures.storeGrants)],
    ["granted under contention", formatCount(figures.contended)],
    ["faults", faults.length === 0 ? "none" : faults.join(", ")],
    ["faults that struck a request", String(figures.effectiveFaults)],
    ["two holders at once", `${figures.doubleHolds} (${formatMs(figures.doubleHoldMs)})`],
    ["tokens that did not rise", String(figures.tokenRegressions)],
    ["late writes: refused by token", String(figures.staleWritesRefused)],
    ["late writes: accepted with token", String(figures.staleWritesAccepted)],
    ["late writes: accepted where nothing compares tokens", String(figures.staleWritesUnfenced)],
    ["locks lost, and latest notice after the lease", `${figures.losses}, ${formatMs(figures.latestNoticeMs)}`],
    ["locks granted without any time left", String(figures.grantsWithoutLease)],
    ["wait: median, longest", `${formatMs(figures.medianWaitMs)}, ${formatMs(figures.longestWaitMs)}`],
    ["strict order: requests overtaken", String(figures.inversions)],
    ["longest time that a free lock was waited for, after the repair", formatMs(figures.longestIdleMs)],
    ["next holder after a crash: median, longest", formatSpread(figures.afterCrashMs)],
    ["another key meanwhile: median, longest", formatOptional(figures.bystanderMedianMs, figures.bystanderLongestMs)],
    ["claims left after two leases", figures.leftovers === null ? "not known" : String(figures.leftovers)],
  ];
}

function formatSpread(sorted: readonly number[]): string {
  const middle = sorted[Math.floor(sorted.length / 2)];
  const longest = sorted.at(-1);
  if (middle === undefined || longest === undefined)
    return "no holder was killed while another one waited and nothing else was struck";
  return `${formatMs(middle)}, ${formatMs(longest)} (${sorted.length})`;
}

function formatOptional(...times: readonly (number | null)[]): string {
  return times.map((ms) => (ms === null ? "-" : formatMs(ms))).join(", ");
}
