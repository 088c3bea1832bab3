/** Warnings of open() about what endangers locks. Each is the bad result of a check that `holdfast doctor` shows, too. */

import { safeListener } from "../errors.ts";
import type { Check } from "../spi/driver.ts";
import { describeValue } from "../util/duration.ts";

/** The listener for warnings; an exception of it does no harm. Default: a process warning. */
export function resolveWarn(warn: (warning: string) => void = emitWarning): (warning: string) => void {
  return safeListener(warn);
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
