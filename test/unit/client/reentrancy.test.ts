import { expect, test } from "vitest";
import { exclusive, semaphorePermits, shared } from "../../../src/client/lock-spec.ts";
import { resolveNesting } from "../../../src/client/reentrancy.ts";
import type { LockSpec } from "../../../src/spi/driver.ts";

const [writeSpec] = exclusive("k");
const [readSpec] = shared("k");
const permits = (count: number): LockSpec => semaphorePermits("k", count, 4)[0];

test.each([
  ["writing inside writing joins", [writeSpec], writeSpec, true, "join"],
  ["reading inside writing joins", [writeSpec], readSpec, true, "join"],
  ["reading inside reading joins", [readSpec], readSpec, true, "join"],
  ["writing inside reading would wait for itself", [readSpec], writeSpec, true, "deadlock"],
  ["nothing joins when that is switched off", [writeSpec], writeSpec, false, "deadlock"],
  ["permits that fit are claimed beside", [permits(2)], permits(2), true, "separate"],
  ["permits that could only wait for their own flow are refused", [permits(2)], permits(3), true, "deadlock"],
  ["all permits held are counted", [permits(1), permits(2)], permits(2), true, "deadlock"],
  ["permits beside a mutex of the same flow would wait for it", [writeSpec], permits(1), true, "deadlock"],
  ["reading beside permits of the same flow would not be told apart", [permits(1)], readSpec, true, "deadlock"],
] as const)("%s", (_, held, wanted, reentrant, expected) => {
  const nesting = resolveNesting(
    held.map((spec) => ({ spec })),
    wanted,
    reentrant,
  );
  expect(typeof nesting === "string" ? nesting : "join").toBe(expected);
});

test("of several covering locks a request joins the innermost one", () => {
  const [inner, outer] = [{ spec: writeSpec }, { spec: writeSpec }];
  expect(resolveNesting([inner, outer], readSpec, true)).toBe(inner);
});
