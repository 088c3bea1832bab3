/** How well torture finds faults: those that are put into Holdfast on purpose. */

import { formatCount } from "../../src/torture/report/format.ts";
import { MUTANTS } from "../../test/mutation/mutants.ts";
import { KNOWN_SEEDS } from "../../test/simulation/known-seeds.ts";
import { TORTURE_MUTANTS } from "../../test/torture/mutants.ts";

export function renderMutants(): string[] {
  return [
    `Today's list has ${TORTURE_MUTANTS.length} such faults for torture, and each must be found from each seed that is tried. For the other tests there are ${formatCount(MUTANTS.length)}, each with the test that must ` +
      `fail. The simulator plays ${KNOWN_SEEDS.length} seeds that once found a fault in every run.`,
  ];
}
