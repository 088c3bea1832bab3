/** Durations at the public border: "30s" becomes 30000 once, here, and is a number of milliseconds everywhere inside. */

type UnitPart<Unit extends string> = `${number}${Unit}` | "";

/**
 * Milliseconds as a whole number, or numbers with their units, the largest unit first and each at most once: "250ms",
 * "1.5s", "10m", "1m30s", "2h", "1d" (24 hours).
 */
export type Duration =
  | number
  | Exclude<`${UnitPart<"d">}${UnitPart<"h">}${UnitPart<"m">}${UnitPart<"s">}${UnitPart<"ms">}`, "">;

/** The longest duration accepted: a hundred years of 365 days. Longer ones are mistakes of unit. */
export const MAX_DURATION_MS: number = 100 * 365 * 86_400_000;

/** The shortest lease: less than this is over before a store across a network has answered. */
export const MIN_TTL_MS = 100;

/** A duration as text. The empty text matches as well, and is none. */
const DURATION_PATTERN = new RegExp(
  "^(?:Nd)?(?:Nh)?(?:Nm)?(?:Ns)?(?:Nms)?$".replaceAll("N", "(\\d{1,15}(?:\\.\\d{1,9})?)"),
);
/** Milliseconds of its units, in the same order. */
const UNITS_MS = [86_400_000, 3_600_000, 60_000, 1_000, 1];

/**
 * A duration in milliseconds.
 * @param name the argument, as the message shall name it
 * @param min the shortest that makes sense
 * @throws TypeError naming the argument if it is not a duration from `min` to MAX_DURATION_MS
 */
export function parseDuration(value: unknown, name: string, min = 0): number {
  const ms = typeof value === "string" ? parseDurationText(value) : value;
  if (typeof ms !== "number" || !Number.isInteger(ms) || ms < min || ms > MAX_DURATION_MS) {
    throw new TypeError(
      `${name} must be milliseconds, whole and from ${min} to a hundred years, or a string such as "30s", "1m30s" or "1d", not ${describeValue(value)}`,
    );
  }
  return ms;
}

/** A duration as people write it: "40 ms", "12 s", "3 m", "2 h". */
export function formatDuration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${Math.round(ms / 1_000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} m`;
  return `${Math.round(ms / 3_600_000)} h`;
}

/** The text in milliseconds; NaN if it is no duration. */
export function parseDurationText(text: string): number {
  const parts = DURATION_PATTERN.exec(text);
  if (parts === null || text === "") return Number.NaN;
  const ms = UNITS_MS.reduce((sum, unit, index) => sum + Number(parts[index + 1] ?? 0) * unit, 0);
  return Math.round(ms * 1_000) / 1_000;
}

/** A wrong value for a message, short and on one line, whatever it is. */
export function describeValue(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
  if (typeof value === "number" || typeof value === "boolean" || value == null) return String(value);
  if (typeof value === "bigint") return `${value}n`;
  return Array.isArray(value) ? "an array" : `${typeof value === "object" ? "an" : "a"} ${typeof value}`;
}
