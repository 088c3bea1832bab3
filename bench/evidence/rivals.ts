/** The rivals' table: by class, each beside Holdfast in the same calls, with the same seeds. */

import { formatCount } from "../../src/torture/report/format.ts";
import type { TortureReport } from "../torture/report.ts";
import { HOLDFAST_CLASS } from "../torture/subjects.ts";
import { formatPairs, formatViolations, renderTable } from "./format.ts";
import type { DatedRow } from "./results.ts";
import { distinct, rowsOf, sumRows } from "./results.ts";

/** It keeps its locks in the memory of a server of its own, so a store's crash means another thing to it: it needs words that its maintainers have seen. */
const LEFT_OUT: readonly string[] = ["own server"];

export function renderRivals(reports: readonly TortureReport[]): string[] {
  const rows = comparableRows(reports);
  if (rows.length === 0) return ["No run yet."];
  const days = distinct(rows.map(({ date }) => date.slice(0, 10)));
  const table = renderTable(
    [
      "Class",
      "Store",
      "Runs ok",
      "Faults that struck",
      "Grants",
      "Pairs of holders at once",
      "Late writes accepted, with tokens",
      "without",
      "Locks lost and reported",
      "Violations",
    ],
    distinct(rows.map((row) => `${row.store}\n${row.class}`)).map((group) => {
      const [store = "", kind = ""] = group.split("\n");
      const totals = sumRows(rows.filter((row) => row.store === store && row.class === kind));
      const { verdicts, effectiveFaults, holds } = totals;
      return [
        kind === HOLDFAST_CLASS ? `**${kind}**` : kind,
        store,
        `${formatCount(verdicts.ok)} of ${formatCount(totals.runs)}`,
        formatCount(effectiveFaults),
        formatCount(holds),
        formatPairs(totals),
        formatCount(totals.staleWritesAccepted),
        formatCount(totals.staleWritesUnfenced),
        formatCount(totals.losses),
        formatViolations(totals.violations),
      ];
    }),
    2,
  );
  return [...table, "", `Run on ${days.join(", ")}.`];
}

/** The rivals' rows, and Holdfast's of the same files, stores and seeds. */
function comparableRows(reports: readonly TortureReport[]): readonly DatedRow[] {
  return reports.flatMap((report) => {
    const rows = rowsOf([report]).filter((row) => !LEFT_OUT.includes(row.class));
    const stores = new Set(rows.filter((row) => row.class !== HOLDFAST_CLASS).map(({ store }) => store));
    return rows.filter(({ store }) => stores.has(store));
  });
}
