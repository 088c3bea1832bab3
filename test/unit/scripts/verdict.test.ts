import { expect, test, vi } from "vitest";
import type { Verdict } from "../../mutation/verdict.ts";
import { judge, judgeInTurn } from "../../mutation/verdict.ts";

const SURVIVED: Verdict = { is: "survived" };
const CAUGHT: Verdict = { is: "caught", by: "the tests: it holds" };
const UNJUDGED: Verdict = { is: "unjudged", why: "the simulator: killed" };

test("a failed test or seed catches the fault, also if it failed by a time limit of its own or its program had to be killed", () => {
  const timedOut = "FAILED a.test.ts > it ends\nFAILED     Test timed out in 20000ms.\n3 passed, 1 failed, 0 skipped\n";
  const by = "the tests: a.test.ts > it ends (Test timed out in 20000ms.)";
  expect(judge("the tests", { output: timedOut, code: 1 })).toEqual({ is: "caught", by });
  const broken = "a trace\nFAILED seed 7: two holders\nFAILED     replay: npm run sim\n";
  const bySeed = "the simulator: seed 7: two holders (replay: npm run sim)";
  expect(judge("the simulator", { output: broken, code: null })).toEqual({ is: "caught", by: bySeed });
});

test("a fault survives a run in which something passed and nothing failed", () => {
  expect(judge("the tests", { output: "3 passed, 0 failed, 1 skipped\n", code: 0 })).toEqual(SURVIVED);
});

test.each([
  ["was killed", { output: "", code: null }],
  ["skipped all tests", { output: "0 passed, 0 failed, 3 skipped\n", code: 0 }],
  ["ended with an error, although no test failed", { output: "3 passed, 0 failed, 0 skipped\n", code: 1 }],
  ["printed no closing line", { output: "", code: 0 }],
])("a run that %s says nothing about the fault", (_, result) => {
  expect(judge("the tests", result)).toMatchObject({ is: "unjudged", why: expect.stringMatching(/^the tests: /) });
});

test("what one cannot judge, another may catch; a fault survives only if all could judge it", () => {
  expect(judgeInTurn([() => UNJUDGED, () => CAUGHT])).toEqual(CAUGHT);
  expect(judgeInTurn([() => UNJUDGED, () => SURVIVED])).toEqual(UNJUDGED);
  expect(judgeInTurn([() => SURVIVED, () => UNJUDGED])).toEqual(UNJUDGED);
  expect(judgeInTurn([() => SURVIVED, () => SURVIVED])).toEqual(SURVIVED);
  const later = vi.fn(() => SURVIVED);
  expect(judgeInTurn([() => CAUGHT, later])).toEqual(CAUGHT);
  expect(later).not.toHaveBeenCalled();
});
