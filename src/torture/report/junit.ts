/** junit.xml: a test suite for the run, a test case for each invariant, as CI systems read it. */

import type { Violation } from "../checker.ts";
import { INVARIANTS } from "../checker.ts";
import { formatSeconds } from "./format.ts";
import { escapeMarkup } from "./markup.ts";
import type { Summary } from "./summary.ts";

const MAX_LISTED = 20;

export function formatJunit(summary: Summary): string {
  const { verdict, violations, reasons, store, subject, seconds } = summary;
  const suite = escapeMarkup(`holdfast torture: ${subject} on ${store}`);
  const cases = INVARIANTS.map((invariant) => {
    const found = violations.filter((violation) => violation.invariant === invariant);
    const start = `<testcase classname="holdfast.torture" name="${invariant}" time="0"`;
    if (found.length > 0) return `${start}>${formatFailure(found)}</testcase>`;
    if (verdict !== "unknown") return `${start}/>`;
    return `${start}><skipped message="${escapeMarkup(reasons.join(", and "))}"/></testcase>`;
  });
  const failures = new Set(violations.map(({ invariant }) => invariant)).size;
  const skipped = verdict === "unknown" ? INVARIANTS.length : 0;
  const counts = `tests="${INVARIANTS.length}" failures="${failures}" errors="0" skipped="${skipped}" time="${seconds}"`;
  return `<?xml version="1.0" encoding="UTF-8"?>
<testsuites ${counts}>
<testsuite name="${suite}" ${counts}>
<properties>
${formatProperties(summary)}
</properties>
${cases.join("\n")}
<system-out>${escapeMarkup(summary.sentence)}</system-out>
</testsuite>
</testsuites>
`;
}

function formatFailure(violations: readonly Violation[]): string {
  const [first] = violations as readonly [Violation, ...Violation[]];
  const more = violations.length === 1 ? "" : ` (and ${violations.length - 1} more)`;
  const lines = violations.slice(0, MAX_LISTED).map(({ at, key, operations, message }) => {
    const where = key === null ? "" : ` ${key}:`;
    return escapeMarkup(`${formatSeconds(at)}${where} ${message} (${operations.join(", ")})`);
  });
  const message = escapeMarkup(`${first.message}${more}`);
  return `<failure type="${first.invariant}" message="${message}">${lines.join("\n")}</failure>`;
}

function formatProperties({ seed, command, commandNote, versions, notTested }: Summary): string {
  const properties: [name: string, value: string][] = [
    ["seed", String(seed)],
    ["command", command],
    ...Object.entries(versions).map(([name, version]): [string, string] => [`version.${name}`, version]),
    ...Object.entries(notTested).map(([name, reason]): [string, string] => [`not tested: ${name}`, reason]),
  ];
  if (commandNote !== null) properties.push(["command note", commandNote]);
  return properties
    .map(([name, value]) => `<property name="${escapeMarkup(name)}" value="${escapeMarkup(value)}"/>`)
    .join("\n");
}
