/** Durations on the command line. */

import { parseDuration, parseDurationText } from "../util/duration.ts";
import { CommandError } from "./errors.ts";

/** A bare number is seconds, as in flock(1). @throws CommandError usage */
export function parseDurationFlag(text: string, flag: string, min = 0): number {
  const ms = parseDurationText(addUnit(text));
  if (Number.isNaN(ms)) {
    throw new CommandError(
      "usage",
      `${flag} must be a duration such as 500ms, 30s, 1m30s or 2h, or a number of seconds, not ${JSON.stringify(text)} (units: ms, s, m, h and d)`,
    );
  }
  try {
    return parseDuration(ms, flag, min);
  } catch (cause) {
    const message = `${flag} must be from ${min}ms to 36500d (a hundred years), in whole milliseconds`;
    throw new CommandError("usage", `${message}, not ${JSON.stringify(text)}`, { cause });
  }
}

/** The text of a duration, as the library reads it. */
export function addUnit(text: string): string {
  return /^\d{1,15}(\.\d{1,9})?$/.test(text) ? `${text}s` : text;
}
