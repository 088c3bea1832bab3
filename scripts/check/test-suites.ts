import { listTestFiles, suitesOf } from "../test/suites.ts";

/** A test file outside every part would never run in `npm test`, and in two parts it would count twice. */
export function testsWithoutOneSuite(): string[] {
  return listTestFiles().flatMap((file) => {
    const names = suitesOf(file);
    if (names.length === 1) return [];
    return [`${file} belongs to ${names.length === 0 ? "no part" : names.join(" and ")} (scripts/test/suites.ts)`];
  });
}
