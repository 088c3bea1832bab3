// What failed, said again where the whole run ends: whoever sees only the last screen of it must know which test it was.

import { stripVTControlCharacters } from "node:util";

type TestFailure = { readonly message: string; readonly stack?: string | undefined };

const FAILURE_MARK = "FAILED ";
/** Lines of a message: a difference of two long values must not hide the others. */
const MAX_MESSAGE_LINES = 30;

/** Every line of it begins with the mark, so that findFailureLines() finds it in what a suite printed. */
export function formatFailure(place: string, errors: readonly TestFailure[]): string[] {
  const why = errors.flatMap(({ message, stack = "" }) => [
    ...stripVTControlCharacters(message).split("\n").slice(0, MAX_MESSAGE_LINES),
    ...stack.split("\n").filter((line) => /^\s*at .*\/test\//.test(line)),
  ]);
  return [`${FAILURE_MARK}${place}`, ...why.map((line) => `${FAILURE_MARK}    ${line.trimEnd()}`)];
}

export function findFailureLines(output: string): string[] {
  return output.split("\n").filter((line) => line.startsWith(FAILURE_MARK));
}
