// What failed, said again where the whole run ends: whoever sees only the last screen of it must know which test it was.

import { stripVTControlCharacters } from "node:util";

type Failure = { readonly message: string; readonly stack?: string | undefined };

const MARK = "FAILED ";
/** Lines of a message: a difference of two long values must not hide the others. */
const LONGEST = 30;

/** Every line of it begins with the mark, so that failureLinesIn() finds it in what a part printed. */
export function failureLines(place: string, errors: readonly Failure[]): string[] {
  const why = errors.flatMap(({ message, stack = "" }) => [
    ...stripVTControlCharacters(message).split("\n").slice(0, LONGEST),
    ...stack.split("\n").filter((line) => /^\s*at .*\/test\//.test(line)),
  ]);
  return [`${MARK}${place}`, ...why.map((line) => `${MARK}    ${line.trimEnd()}`)];
}

export function failureLinesIn(output: string): string[] {
  return output.split("\n").filter((line) => line.startsWith(MARK));
}
