import { expect, test } from "vitest";
import { applyMutant, MUTANTS } from "../../mutation/mutants.ts";
import { TORTURE_MUTANTS } from "../../torture/mutants.ts";

// running the mutants takes minutes (`npm run test:mutants`); this checks only that their texts are still in the code
test.each([...MUTANTS, ...TORTURE_MUTANTS])("the code still contains the text replaced by: $name", (mutant) => {
  expect(applyMutant(mutant)).not.toBe("");
});
