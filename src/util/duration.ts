/** Durations of the API: "30s" becomes 30000 here; inside, a duration is always a number of milliseconds. */

type UnitPart<Unit extends string> = `${number}${Unit}` | "";

/**
 * A whole number of milliseconds, or a string of numbers with units, the largest unit first and each at most once:
 * "250ms", "1.5s", "10m", "1m30s", "2h", "1d" (24 hours).
 */
export type Duration =
  | number
  | Exclude<`${UnitPart<"d">}${UnitPart<"h">}${UnitPart<"m">}${UnitPart<"s">}${UnitPart<"ms">}`, "">;

/** The longest accepted duration: a hundred years of 365 days. A longer one is probably in the wrong unit. */
export const MAX_DURATION_MS: number = 100 * 365 * 86_400_000;

/** The longest delay of setTimeout, which fires at once for a longer one; a longer wait takes several timeouts. */
export const MAX_TIMEOUT_MS: number = 2 ** 31 - 1;

/** The shortest lease: a shorter one could end before a store across a network has answered. */
export const MIN_TTL_MS = 100;

/** The text form of a duration. The empty text also matches and must be rejected separately. */
const DURATION_PATTERN = new RegExp(
  "^(?:Nd)?(?:Nh)?(?:Nm)?(?:Ns)?(?:Nms)?$".replaceAll("N", "(\\d{1,15}(?:\\.\\d{1,9})?)"),
);
/** The units of DURATION_PATTERN in milliseconds, in the same order. */
const UNITS_MS = [86_400_000, 3_600_000, 60_000, 1_000, 1];

/**
 * Parses a duration into milliseconds.
 * @param name the name of the argument in the error message
 * @param min the shortest valid duration
 * @throws TypeError naming the argument if it is not a duration from `min` to MAX_DURATION_MS
 */
export function parseDuration(value: unknown, name: string, min = 0): number {
  const ms = typeof value === "string" ? parseDurationText(value) : value;
  if (typeof ms !== "number" || !Number.isInteger(ms) || ms < min || ms > MAX_DURATION_MS) {
    throw new TypeError(
      `${name} must be a whole number of milliseconds from ${min} to a hundred years, or a string such as "30s", "1m30s" or "1d", not ${describeValue(value)}`,
    );
  }
  return ms;
}

/** Formats a duration for people: "40 ms", "12 s", "3 m", "2 h". */
export function formatDuration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${Math.round(ms / 1_000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} m`;
  return `${Math.round(ms / 3_600_000)} h`;
}

/** Parses the text form of a duration into milliseconds; NaN if it is not a duration. */
export function parseDurationText(text: string): number {
  const parts = DURATION_PATTERN.exec(text);
  if (parts === null || text === "") return Number.NaN;
  const ms = UNITS_MS.reduce((sum, unit, index) => sum + Number(parts[index + 1] ?? 0) * unit, 0);
  return Math.round(ms * 1_000) / 1_000;
}

/** Describes any wrong value in a message, in short and on one line. */
export function describeValue(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
  if (typeof value === "number" || typeof value === "boolean" || value == null) return String(value);
  if (typeof value === "bigint") return `${value}n`;
  return Array.isArray(value) ? "an array" : `${typeof value === "object" ? "an" : "a"} ${typeof value}`;
}
