/** Rounds in which each implementation is measured once, one at a time. */

import { waitForIdle } from "./machine.ts";
import { IS_QUICK_RUN } from "./quick-run.ts";

const QUICK_RUN = { warmUp: 1, counted: 2 };

export interface RoundCounts {
  /** Not counted, while code is compiled and heaps grow. Default 1. */
  readonly warmUp?: number | undefined;
  /** Default 7. */
  readonly counted?: number | undefined;
}

/** The first place goes round, too. */
export async function runRounds<T>(
  groups: readonly T[],
  counts: RoundCounts,
  measure: (group: T, isCounted: boolean) => Promise<void>,
): Promise<void> {
  const { warmUp = 1, counted = 7 } = IS_QUICK_RUN ? QUICK_RUN : counts;
  for (let round = -warmUp; round < counted; round++) {
    for (let turn = 0; turn < groups.length; turn++) {
      if (!IS_QUICK_RUN) await waitForIdle();
      await measure(groups[(turn + round + warmUp) % groups.length] as T, round >= 0);
    }
  }
}
