import { readFileSync } from "node:fs";
import { isVitestSuite, listTestFiles, SUITES, suitesOf } from "../test/suites.ts";

/** A test file outside every suite would never run in `npm test`, and in two suites it would count twice. */
export function testsWithoutOneSuite(): string[] {
  return listTestFiles().flatMap((file) => {
    const names = suitesOf(file);
    if (names.length === 1) return [];
    return [`${file} belongs to ${names.length === 0 ? "no suite" : names.join(" and ")} (scripts/test/suites.ts)`];
  });
}

/** A beginning of paths that fits no test would leave a suite without what it is for. */
export function deadSuiteRows(): string[] {
  const files = listTestFiles();
  return SUITES.filter(isVitestSuite)
    .flatMap(({ tests, excludes = [] }) => [...tests, ...excludes])
    .filter((beginning) => !files.some((file) => file.startsWith(beginning)))
    .map((beginning) => `scripts/test/suites.ts names ${beginning}, which does not exist`);
}

/** A suite that is missing from the matrix would never run on its own machine. */
export function findMatrixProblems(workflow: string = readFileSync(".github/workflows/ci.yml", "utf8")): string[] {
  const block = /^ {8}suite:\n((?: {10}- .+\n)+)/m.exec(workflow)?.[1] ?? "";
  const listed = block.split("\n").flatMap((line) => (line.trim() === "" ? [] : [line.trim().slice("- ".length)]));
  const names = SUITES.map(({ name }) => name);
  return [
    ...names
      .filter((name) => !listed.includes(name))
      .map((name) => `.github/workflows/ci.yml does not run suite ${name}`),
    ...listed
      .filter((name) => !names.includes(name))
      .map((name) => `.github/workflows/ci.yml runs ${name}, which is no suite`),
  ];
}
