import { partsOf, testFiles } from "../test/parts.ts";

/** A test file outside every part would never run in `npm test`, and in two parts it would count twice. */
export function everyTestHasOnePart(): string[] {
  return testFiles().flatMap((file) => {
    const names = partsOf(file);
    if (names.length === 1) return [];
    return [`${file} belongs to ${names.length === 0 ? "no part" : names.join(" and ")} (scripts/test/parts.ts)`];
  });
}
