/** Writes the reports of a run beside its history. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { HistoryEvent } from "../history.ts";
import type { History } from "../operations.ts";
import { formatPage } from "./html.ts";
import { formatJunit } from "./junit.ts";
import type { Summary } from "./summary.ts";

/** @param events are read only if a violation must be explained */
export function writeReports(
  directory: string,
  summary: Summary,
  history: History,
  events: Iterable<HistoryEvent>,
): void {
  const write = (name: string, text: string): void => writeFileSync(join(directory, name), text, { mode: 0o600 });
  write("summary.json", `${JSON.stringify(summary, null, 2)}\n`);
  write("junit.xml", formatJunit(summary));
  write("report.html", formatPage(summary, history, events));
}
