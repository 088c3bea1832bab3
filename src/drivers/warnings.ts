/** Warnings of open() about what endangers locks. Each is the bad result of a check that `holdfast doctor` shows, too. */

import { safeListener } from "../errors.ts";
import type { Check } from "../spi/driver.ts";
import { describeValue } from "../util/duration.ts";

/** What is wrong with a store is found by each call to it, many times a second. */
const REPEAT_INTERVAL_MS = 60_000;

/**
 * The listener for warnings, which receives the same text at most once a minute; an exception of it does no harm. Default: a
 * process warning. One function for as long as its driver is open: it remembers the texts.
 */
export function resolveWarn(warn: (warning: string) => void = emitWarning): (warning: string) => void {
  const listener = safeListener(warn);
  const repeatableAt = new Map<string, number>();
  return (warning) => {
    const now = performance.now();
    for (const [text, at] of repeatableAt) if (at <= now) repeatableAt.delete(text);
    if (repeatableAt.has(warning)) return;
    repeatableAt.set(warning, now + REPEAT_INTERVAL_MS);
    listener(warning);
  };
}

function emitWarning(warning: string): void {
  process.emitWarning(warning, "HoldfastWarning");
}

/** The rule of the option `silenceWarnings`: a list of some of these names. */
export function warningNamesRule(names: readonly string[]): (value: unknown) => string | null {
  const allNames = names.join(", ");
  return (value) => {
    if (!Array.isArray(value)) return `a list of ${allNames}`;
    const unknownName: unknown = value.find((name: unknown) => !(names as readonly unknown[]).includes(name));
    if (unknownName === undefined) return null;
    throw new TypeError(`silenceWarnings has no warning ${describeValue(unknownName)}: use ${allNames}`);
  };
}

/** The warnings of open(), without the silenced ones. */
export function formatWarnings(
  driverName: string,
  checks: readonly Check[],
  silenced: readonly string[] = [],
): string[] {
  return checks
    .filter(({ status, name }) => (status === "fail" || status === "warn") && !silenced.includes(name))
    .map(({ message, hint }) => `${driverName}: ${message}${hint === undefined ? "" : `; ${hint}`}`);
}
