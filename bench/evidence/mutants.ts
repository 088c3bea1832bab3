/** How well torture finds faults: those that are put into Holdfast on purpose. */

import { MUTANTS } from "../../test/mutation/mutants.ts";
import { KNOWN_SEEDS } from "../../test/simulation/known-seeds.ts";
import { TORTURE_MUTANTS } from "../../test/torture/mutants.ts";
import { formatCount } from "./format.ts";

export function renderMutants(): string[] {
  const rare = TORTURE_MUTANTS.filter(({ isRare }) => isRare === true).length;
  return [
    `Today's list has ${TORTURE_MUTANTS.length} such faults for torture: ${TORTURE_MUTANTS.length - rare} must be found from each seed that is tried, and ${rare}, which need ` +
      `several things to come together, from one of the seeds. For the other tests there are ${formatCount(MUTANTS.length)}, each with the test that must ` +
      `fail. The simulator plays ${KNOWN_SEEDS.length} seeds that once found a fault in every run.`,
  ];
}
