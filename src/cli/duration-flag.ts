/** Durations on the command line. */

import { parseDuration, parseDurationText } from "../util/duration.ts";
import { CommandError } from "./errors.ts";

/** A duration with its unit, or 0. @throws CommandError usage */
export function parseDurationFlag(text: string, flag: string, min = 0): number {
  const ms = text === "0" ? 0 : parseDurationText(text);
  if (Number.isNaN(ms)) {
    throw new CommandError(
      "usage",
      // a bare number could mean seconds or milliseconds; only 0 is the same in both
      `${flag} must be a duration with its unit, such as 500ms, 30s, 1m30s or 2h, not ${JSON.stringify(text)} (units: ms, s, m, h and d)`,
    );
  }
  try {
    return parseDuration(ms, flag, min);
  } catch (cause) {
    const message = `${flag} must be from ${min}ms to 36500d (a hundred years), in whole milliseconds`;
    throw new CommandError("usage", `${message}, not ${JSON.stringify(text)}`, { cause });
  }
}
