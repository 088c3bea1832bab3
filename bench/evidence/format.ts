/** How figures, names and tables stand on the page. */

import { formatCount } from "../../src/torture/report/format.ts";

/** "87 ms", "1.24 s". */
export function formatMs(ms: number): string {
  return ms < 1_000 ? `${Math.round(ms)} ms` : `${Number((ms / 1_000).toFixed(2))} s`;
}

/** "42 s", "12 min", "3.5 h". */
export function formatSpan(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`;
  return `${Number((seconds / 3_600).toFixed(1))} h`;
}

/** @param textColumns so many are text, from the left; the others are figures */
export function renderTable(head: readonly string[], rows: readonly (readonly string[])[], textColumns = 1): string[] {
  const rule = head.map((_, index) => (index < textColumns ? "---" : "---:"));
  return [`| ${head.join(" | ")} |`, `|${rule.join("|")}|`, ...rows.map((cells) => `| ${cells.join(" | ")} |`)];
}

/** "exclusion 3, progress 1"; nothing: "–". */
export function formatViolations(counts: Readonly<Record<string, number>>): string {
  const parts = Object.entries(counts).map(([invariant, count]) => `${invariant} ${formatCount(count)}`);
  return parts.join(", ") || "–";
}

/** "0", "2 (7 ms)". */
export function formatPairs({ doubleHolds, doubleHoldMs }: { doubleHolds: number; doubleHoldMs: number }): string {
  return doubleHolds === 0 ? "0" : `${formatCount(doubleHolds)} (${formatMs(doubleHoldMs)})`;
}

/** "2026-11-30", "2026-11-30 to 2026-12-02". */
export function formatDays(days: readonly string[]): string {
  return days.length < 2 ? (days[0] ?? "") : `${days[0]} to ${days.at(-1)}`;
}
