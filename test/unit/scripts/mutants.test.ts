import { expect, test } from "vitest";
import { applyMutant, MUTANTS } from "../../mutation/mutants.ts";

// trying them takes minutes, `npm run test:mutants`; that their texts still stand in the code is seen here
test.each(MUTANTS)("the code still contains the text replaced by: $name", (mutant) => {
  expect(applyMutant(mutant)).not.toBe("");
});
