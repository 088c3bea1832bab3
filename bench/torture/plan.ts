/** What a call of `npm run bench -- --torture` runs, from its flags. */

import { parseDuration } from "../../src/util/duration.ts";
import { IS_QUICK_RUN } from "../harness/quick-run.ts";
import type { TortureSubject } from "./subjects.ts";
import { selectSubjects } from "./subjects.ts";

export interface TorturePlan {
  readonly subjects: readonly TortureSubject[];
  readonly seeds: readonly number[];
  /** Of the faults of each run, as `holdfast torture` has it. */
  readonly time: string;
  readonly ms: number;
  /** As `holdfast torture` has them; undefined: all that are possible. */
  readonly faults: string | undefined;
}

const DEFAULT_SEEDS = "1-3";
const DEFAULT_TIME = IS_QUICK_RUN ? "5s" : "30s";

/** @throws RangeError or TypeError for what is none of these */
export function parsePlan(
  flags: { readonly [Name in "seeds" | "time" | "faults"]?: string | undefined },
  names: readonly string[],
): TorturePlan {
  const { seeds = DEFAULT_SEEDS, time = DEFAULT_TIME, faults } = flags;
  return {
    subjects: selectSubjects(names),
    seeds: parseSeeds(seeds),
    ...{ time, ms: parseDuration(time, "--time"), faults },
  };
}

/** "7" or "1-20". @throws RangeError */
function parseSeeds(text: string): readonly number[] {
  const [, first, last = first] = /^(\d{1,9})(?:-(\d{1,9}))?$/.exec(text) ?? [];
  const count = Number(last) - Number(first) + 1;
  if (first === undefined || count < 1) throw new RangeError(`--seeds takes a number or FIRST-LAST, not "${text}"`);
  return Array.from({ length: count }, (_, index) => Number(first) + index);
}
