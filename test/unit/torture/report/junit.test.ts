import { expect, test } from "vitest";
import { INVARIANTS } from "../../../../src/torture/checker.ts";
import { between, COMMAND, createReports } from "./reports.ts";
import { doubleGrant, goodHistory, HEADER, sampleEnd, sampleWorkers } from "./sample-history.ts";

function casesIn(junit: string): string[] {
  return [...junit.matchAll(/<testcase classname="holdfast\.torture" name="(\w+)"/g)].map(([, name]) => name as string);
}

test("a test case for each invariant; a good run has no failure", () => {
  const { junit } = createReports(goodHistory());
  expect(casesIn(junit)).toEqual([...INVARIANTS]);
  expect(junit).toContain('<testsuite name="holdfast torture: Holdfast 1.2.3 on Redis 7.0.15" tests="7" failures="0"');
  expect(junit).not.toMatch(/<failure|<skipped/);
  expect(junit).toContain(`<property name="command" value="${COMMAND}"/>`);
  expect(junit).toContain('<property name="seed" value="7"/>');
});

test("a violated invariant fails with its message; the others pass", () => {
  const { junit, summary } = createReports(doubleGrant());
  const failed = new Set(summary.violations.map(({ invariant }) => invariant));
  expect(junit.match(/<failure /g)?.length).toBe(failed.size);
  expect(junit).toContain(`failures="${failed.size}"`);
  const exclusion = between(junit, 'name="exclusion"', "</testcase>");
  expect(exclusion).toContain('message="two holders had it at once, for 100 ms"');
  expect(exclusion).toContain("6.200 s a: two holders had it at once, for 100 ms (0/100, 1/100)");
  expect(junit).toContain('name="remains" time="0"/>');
});

test("a run that shows nothing skips all, with the reason", () => {
  const { junit } = createReports([HEADER, ...sampleWorkers(), ...sampleEnd()]);
  expect(junit).toContain('tests="7" failures="0" errors="0" skipped="7"');
  expect(junit.match(/<skipped message="no fault was injected/g)?.length).toBe(7);
});
