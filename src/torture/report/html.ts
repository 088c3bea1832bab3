/** report.html: the run for people, in one file without scripts and without anything from elsewhere. */

import type { Invariant, Violation } from "../checker.ts";
import { INVARIANTS } from "../checker.ts";
import type { HistoryEvent } from "../history.ts";
import type { History } from "../operations.ts";
import { operationId } from "../operations.ts";
import { eventsAround } from "./events-around.ts";
import { formatDistance, formatSeconds } from "./format.ts";
import { escapeMarkup, formatTable } from "./markup.ts";
import { drawOverview } from "./overview.ts";
import { PAGE_STYLE } from "./page-style.ts";
import type { DrawableHistory } from "./spans.ts";
import { busiestFault, listKeys, spanOfFault, toDrawable } from "./spans.ts";
import type { Summary } from "./summary.ts";
import { tableOf } from "./text.ts";
import { formatViolation } from "./violation-section.ts";
import { drawWindow, fitWindow } from "./window.ts";

const MICROS_PER_MS = 1_000;
const LEASES_AROUND = 2;
/** Violations with a section of their own; summary.json has all. */
const MAX_SECTIONS = 10;
const MAX_FAULT_ROWS = 500;

const RULES: Readonly<Record<Invariant, string>> = {
  exclusion: "No two processes certainly believed at one time that they held a lock that only one may hold.",
  tokens: "A lock granted before another one was asked for has the lower token, and no token was granted twice.",
  register: "A register that compares tokens accepted no late write, and refused no holder.",
  release: "A release that said the lock was held came before any other process held it.",
  notice: "A holder whose process ran was told that it had lost the lock.",
  progress: "Every request ended in time, and after the repair each key was granted.",
  remains: "After two leases nothing was left in the store.",
};

export function formatPage(summary: Summary, history: History, events: Iterable<HistoryEvent>): string {
  const { verdict, sentence, subject, store } = summary;
  const drawable = toDrawable(history);
  const title = escapeMarkup(`${subject} on ${store}: ${verdict}`);
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>${title}</title>
<style>${PAGE_STYLE}</style>
</head>
<body>
<header>
<h1><span class="verdict ${verdict}">${verdict.toUpperCase()}</span> holdfast torture</h1>
<p class="sentence">${escapeMarkup(sentence)}</p>
</header>
<main>
${formatReasons(summary)}
${formatRepeat(summary)}
<h2>The entire run</h2>
${drawOverview(drawable, summary.violations)}
${summary.violations.length > 0 ? formatViolations(summary, drawable, events) : formatBusiestFault(drawable)}
<h2>Invariants</h2>
${formatInvariants(summary)}
<h2>Figures</h2>
${formatFigures(summary)}
<h2>Faults</h2>
${formatFaults(history)}
</main>
</body>
</html>
`;
}

function formatReasons({ reasons }: Summary): string {
  if (reasons.length === 0) return "";
  const items = reasons.map((reason) => `<li>${escapeMarkup(reason)}</li>`).join("");
  return `<h2>Why the run shows nothing</h2><ul>${items}</ul>`;
}

function formatRepeat({ command, commandNote, seed, versions, ttlMs, workers }: Summary): string {
  const note = commandNote === null ? "" : `<p>${escapeMarkup(commandNote)}</p>`;
  const parts = [
    ["seed", String(seed)],
    ["leases", formatDistance(ttlMs * MICROS_PER_MS)],
    ["workers", String(workers)],
    ...Object.entries(versions),
  ].map(([name = "", value = ""]) => `<div><dt>${escapeMarkup(name)}</dt><dd>${escapeMarkup(value)}</dd></div>`);
  return `<h2>Repeat it</h2>
<pre tabindex="0"><code>${escapeMarkup(command)}</code></pre>${note}
<p class="muted">A seed decides the choices of faults and workers, not the speed of the machine: another run differs in its times.</p>
<dl>${parts.join("")}</dl>`;
}

function formatViolations({ violations }: Summary, drawable: DrawableHistory, events: Iterable<HistoryEvent>): string {
  const byId = new Map(drawable.history.operations.map((record) => [operationId(record), record]));
  const context = { drawable, byId };
  const shown = differentOnes(violations).slice(0, MAX_SECTIONS);
  const around = eventsAround(shown, events, drawable.history, byId);
  const sections = shown.map((violation, index) =>
    formatViolation(violation, violations.indexOf(violation) + 1, around[index] ?? [], context),
  );
  const rest = violations.length - sections.length;
  const more = rest > 0 ? `<p>${rest} more are in summary.json.</p>` : "";
  return `<h2>Violations: ${violations.length}</h2>${sections.join("")}${more}`;
}

/** Two findings about the same operations are explained by the same events. */
function differentOnes(violations: readonly Violation[]): Violation[] {
  const seen = new Set<string>();
  return violations.filter(({ key, operations, message }) => {
    const name = operations.length === 0 ? message : `${key} ${operations.join(" ")}`;
    const isNew = !seen.has(name);
    seen.add(name);
    return isNew;
  });
}

/** A run without violations: what the locks did while most of them were struck. */
function formatBusiestFault(drawable: DrawableHistory): string {
  const { history, spans } = drawable;
  const fault = busiestFault(history, spans);
  if (fault === null) return "";
  const keys = listKeys(history);
  const window = fitWindow(drawable, fault.beganAt, LEASES_AROUND * history.header.ttlMs * MICROS_PER_MS, keys);
  const title = `${formatDistance(window.reach)} before and after the fault ${fault.fault} at ${formatSeconds(fault.beganAt)}`;
  const picture = drawWindow(drawable, { title, window, keys, concerned: [], markAt: null });
  return `<h2>The fault that struck most operations: ${escapeMarkup(fault.fault)}</h2><p>${escapeMarkup(title)}</p>${picture}`;
}

function formatInvariants({ verdict, violations }: Summary): string {
  const resultOf = (invariant: Invariant): string => {
    const count = violations.filter((violation) => violation.invariant === invariant).length;
    if (count > 0) return `violated, ${count} times`;
    return verdict === "unknown" ? "unknown" : "ok";
  };
  const results = INVARIANTS.map(resultOf);
  return formatTable({
    caption: "What was checked",
    head: ["Invariant", "Result", "Meaning"],
    rows: INVARIANTS.map((invariant, index) => [invariant, results[index] as string, RULES[invariant]]),
    classOf: (index) => (results[index]?.startsWith("violated") === true ? "concerned" : null),
  });
}

function formatFigures({ figures, notTested }: Summary): string {
  const rows = [
    ...tableOf(figures),
    ...Object.entries(notTested).map(([name, reason]) => [`not tested: ${name}`, reason]),
  ];
  return formatTable({ caption: "What the run has shown", head: ["Figure", "Value"], rows });
}

function formatFaults(history: History): string {
  if (history.faults.length === 0) return "<p>None was injected.</p>";
  const rows = history.faults.slice(0, MAX_FAULT_ROWS).map((record) => {
    const { from, to } = spanOfFault(record, history);
    const workers = record.workers === null ? "all" : record.workers.join(", ");
    return [formatSeconds(from), record.fault, workers, to === from ? "a moment" : formatDistance(to - from)];
  });
  const table = formatTable({
    caption: `The first ${rows.length} of ${history.faults.length} faults`,
    head: ["Time", "Fault", "Workers", "Length"],
    rows,
  });
  return `<details><summary>${history.faults.length} faults</summary>${table}</details>`;
}
