/**
 * Two faults at once, those of a torture and a full disk: every pair strikes runs of `holdfast run`, on the Holdfast server and on Redis
 * with Sentinels. The kernel's locks and a register that refuses lower tokens are the judges (workload.ts). A torture has no wrappers with
 * commands that outlive them. HOLDFAST_SEED repeats a plan.
 */

import { expect } from "vitest";
import { createRandom } from "../../../src/testing/random.ts";
import { until } from "../../../src/testing/until.ts";
import { mountNamespaceUnavailableReason } from "../../support/processes/mount-namespace.ts";
import type { ProcessHarness } from "../../support/processes/process-harness.ts";
import { IS_LONG_RUN, test } from "../../support/processes/process-harness.ts";
import type { Pair, Target } from "./faults.ts";
import { faultPairs, pairIncludes, shuffleSchedule, strikeTogether } from "./faults.ts";
import { redisSentinelTarget } from "./redis-sentinel-target.ts";
import { serverTarget } from "./server-target.ts";
import type { RunWorkload } from "./workload.ts";
import { startWorkload } from "./workload.ts";

const STRIKES_PER_PAIR = IS_LONG_RUN ? 10 : 1;
const WORKERS = 6;
const MOST_PAIRS = 40;
/** From the repair to the next command that enters: a loose bound, since the machine may be busy. */
const PROGRESS_MS = 40_000;
const SEED = Number(process.env.HOLDFAST_SEED ?? Date.now() % 1_000_000);

interface NemesisCase {
  readonly what: string;
  /** In the short form each pair strikes one of the stores, the simplest that has both faults: here, those with one of these. */
  readonly shortFaults: readonly string[] | null;
  /** Plans that found a fault once; the long form repeats them. */
  readonly knownSeeds: readonly number[];
  open(harness: ProcessHarness): Promise<Target>;
}

const CASES: readonly NemesisCase[] = [
  {
    what: "our server on a Unix socket",
    shortFaults: null,
    // wrapper and server killed: the command overlapped with the next one
    knownSeeds: [1, 4, 6],
    open: (harness) => serverTarget(harness, "socket"),
  },
  {
    what: "our server on TCP",
    shortFaults: ["cut", "partition"],
    knownSeeds: [],
    open: (harness) => serverTarget(harness, "TCP"),
  },
  {
    what: "Redis with Sentinels",
    shortFaults: ["cut subscribers", "store-fail-over"],
    // an overlap with the Lua scripts as they were when a claim could be granted in several places
    knownSeeds: [11],
    open: redisSentinelTarget,
  },
];

function choosePairs(target: Target, workload: RunWorkload, shortFaults: NemesisCase["shortFaults"]): readonly Pair[] {
  const pairs = faultPairs(target.faults(workload));
  return IS_LONG_RUN || shortFaults === null ? pairs : pairs.filter((pair) => pairIncludes(pair, shortFaults));
}

async function runStrikes(
  target: Target,
  pairs: readonly Pair[],
  workload: RunWorkload,
  seed: number,
): Promise<number> {
  const random = createRandom(seed);
  let strikeCount = 0;
  for (const pair of shuffleSchedule(pairs, STRIKES_PER_PAIR, random)) {
    await strikeTogether(target, pair, random);
    strikeCount++;
    const before = workload.countEntered();
    const [one, other] = pair;
    await until(() => workload.countEntered() > before || workload.faults().length > 0, {
      within: PROGRESS_MS,
      what: `a run after "${one.name}" and "${other.name}" on ${target.name}`,
    });
    if (workload.faults().length > 0)
      throw new Error(`"${one.name}", then "${other.name}": ${workload.faults().join("; ")}`);
  }
  return strikeCount;
}

async function runJudged(target: Target, workload: RunWorkload, pairs: readonly Pair[], seed: number): Promise<void> {
  const started = performance.now();
  const strikeCount = await runStrikes(target, pairs, workload, seed);
  await workload.finish();
  expect(workload.faults()).toEqual([]);
  expect(strikeCount).toBe(pairs.length * STRIKES_PER_PAIR);
  const seconds = ((performance.now() - started) / 1_000).toFixed(0);
  const exitSummary = Object.entries(workload.exitCodes()).map(([code, count]) => `${count} x ${code}`);
  console.log(
    `figure: nemesis on ${target.name} (seed ${seed}): ${strikeCount} pairs of faults in ${seconds} s, ` +
      `${workload.countEntered()} commands entered; runs by exit code: ${exitSummary.join(", ")}`,
  );
}

const skip = mountNamespaceUnavailableReason === null ? "" : `: ${mountNamespaceUnavailableReason}, skipped`;

for (const { what, shortFaults, knownSeeds, open } of CASES) {
  for (const seed of IS_LONG_RUN ? [SEED, ...knownSeeds] : [SEED]) {
    test
      .skipIf(skip !== "")
      .concurrent(
        `each pair of faults on ${what}, seed ${seed}: no two commands at once, tokens rise, runs continue${skip}`,
        { timeout: MOST_PAIRS * STRIKES_PER_PAIR * 60_000 },
        async ({ harness }) => {
          const target = await open(harness);
          // a generator apart from the plan's, so that a plan does not depend on how the runs end
          const workload = startWorkload(harness, WORKERS, createRandom(seed + 1), target.clients);
          try {
            await runJudged(target, workload, choosePairs(target, workload, shortFaults), seed);
          } finally {
            workload.stop();
            await target.close();
          }
        },
      );
  }
}
