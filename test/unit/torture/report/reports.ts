/** The reports of a history, as a run writes them. */

import { checkHistory } from "../../../../src/torture/checker.ts";
import type { HistoryEvent } from "../../../../src/torture/history.ts";
import { readOperations } from "../../../../src/torture/operations.ts";
import { formatPage } from "../../../../src/torture/report/html.ts";
import { formatJunit } from "../../../../src/torture/report/junit.ts";
import type { Summary } from "../../../../src/torture/report/summary.ts";
import { createSummary } from "../../../../src/torture/report/summary.ts";

export const COMMAND = "holdfast torture --start redis --seed 7";

export interface Reports {
  readonly summary: Summary;
  readonly html: string;
  readonly junit: string;
  /** All of them. */
  readonly text: string;
}

export function createReports(events: readonly HistoryEvent[], note: string | null = null): Reports {
  const history = readOperations(events);
  const untested = { latency: "there is no proxy" };
  const summary = createSummary(history, checkHistory(history), untested, { command: COMMAND, note });
  const html = formatPage(summary, history, events);
  const junit = formatJunit(summary);
  return { summary, html, junit, text: `${JSON.stringify(summary)}${html}${junit}` };
}

/** The part of a page between two texts. */
export function between(html: string, start: string, end: string): string {
  const from = html.indexOf(start);
  if (from < 0) throw new Error(`the page has no ${start}`);
  return html.slice(from, html.indexOf(end, from));
}
