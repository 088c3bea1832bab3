import { expect, test } from "vitest";
import { MUTANTS, mutated } from "../mutants/mutants.ts";

// trying them takes minutes, `npm run test:mutants`; that their texts still stand in the code is seen here
test.each(MUTANTS)("the code still has what would be broken by: $name", (mutant) => {
  expect(mutated(mutant)).not.toBe("");
});
