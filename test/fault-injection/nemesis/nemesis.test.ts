/**
 * Two faults at once: every pair of the eight faults strikes runs of `holdfast run`, on the Holdfast server, on Redis with
 * Sentinels and on etcd. The kernel's locks and a register that refuses lower tokens are the judges (workload.ts). HOLDFAST_SEED repeats a plan.
 */

import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import type { Random } from "../../../src/testing/random.ts";
import { createRandom } from "../../../src/testing/random.ts";
import { until } from "../../../src/testing/until.ts";
import { mountNamespaceUnavailableReason } from "../../support/processes/mount-namespace.ts";
import type { ProcessHarness } from "../../support/processes/process-harness.ts";
import { IS_LONG_RUN, test } from "../../support/processes/process-harness.ts";
import { etcdTarget, FAULTS_ON_ETCD } from "./etcd-target.ts";
import type { FaultName, Pair, Target } from "./faults.ts";
import { FAULTS, faultPairs, shuffleSchedule } from "./faults.ts";
import { redisSentinelTarget } from "./redis-sentinel-target.ts";
import { FAULTS_ON_SOCKET, FAULTS_ON_TCP, serverTarget } from "./server-target.ts";
import type { RunWorkload } from "./workload.ts";
import { startWorkload } from "./workload.ts";

const STRIKES_PER_PAIR = IS_LONG_RUN ? 10 : 1;
const WORKERS = 6;
/** From the repair to the next command that enters: a loose bound, since the machine may be busy. */
const PROGRESS_MS = 40_000;
const SEED = Number(process.env.HOLDFAST_SEED ?? Date.now() % 1_000_000);

interface NemesisCase {
  readonly what: string;
  readonly pairs: readonly Pair[];
  /** Plans that found a fault once; the long form repeats them. */
  readonly knownSeeds: readonly number[];
  open(harness: ProcessHarness, random: Random): Promise<Target>;
}

const pairIncludes = (pair: Pair, faults: readonly FaultName[]): boolean =>
  pair.some((fault) => faults.includes(fault));

/** In the short form each pair strikes one of the stores, the simplest that has both faults. */
const CASES: readonly NemesisCase[] = [
  {
    what: "our server on a Unix socket",
    pairs: faultPairs(FAULTS_ON_SOCKET),
    // wrapper and server killed: the command overlapped with the next one
    knownSeeds: [1, 4, 6],
    open: (harness, random) => serverTarget(harness, random, "socket"),
  },
  {
    what: "our server on TCP",
    pairs: faultPairs(FAULTS_ON_TCP).filter((pair) => IS_LONG_RUN || pairIncludes(pair, ["cut"])),
    knownSeeds: [],
    open: (harness, random) => serverTarget(harness, random, "TCP"),
  },
  {
    what: "Redis with Sentinels",
    pairs: faultPairs(FAULTS).filter((pair) => IS_LONG_RUN || pairIncludes(pair, ["cut subscribers", "fail over"])),
    // an overlap with the Lua scripts as they were when a claim could be granted in several places
    knownSeeds: [11],
    open: redisSentinelTarget,
  },
  {
    what: "etcd with three members",
    pairs: faultPairs(FAULTS_ON_ETCD).filter((pair) => IS_LONG_RUN || pairIncludes(pair, ["fail over"])),
    knownSeeds: [],
    open: (_, random) => etcdTarget(random),
  },
];

async function runStrikes(
  target: Target,
  pairs: readonly Pair[],
  workload: RunWorkload,
  seed: number,
): Promise<number> {
  const random = createRandom(seed);
  let strikeCount = 0;
  for (const [one, other] of shuffleSchedule(pairs, STRIKES_PER_PAIR, random)) {
    // a fault that is not possible now is tried again: a fail-over is refused while another one is in progress
    await until(() => target.inject(one), { within: 20_000, what: `"${one}" to be possible` });
    await delay(random.int(300));
    await until(() => target.inject(other), { within: 20_000, what: `"${other}" to be possible` });
    await delay(random.int(500));
    await target.heal();
    strikeCount++;
    const before = workload.countEntered();
    await until(() => workload.countEntered() > before || workload.faults().length > 0, {
      within: PROGRESS_MS,
      what: `a run after "${one}" and "${other}" on ${target.name}`,
    });
    if (workload.faults().length > 0) throw new Error(`"${one}", then "${other}": ${workload.faults().join("; ")}`);
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

for (const { what, pairs, knownSeeds, open } of CASES) {
  for (const seed of IS_LONG_RUN ? [SEED, ...knownSeeds] : [SEED]) {
    test
      .skipIf(skip !== "")
      .concurrent(
        `each pair of faults on ${what}, seed ${seed}: no two commands at once, tokens rise, runs continue${skip}`,
        { timeout: pairs.length * STRIKES_PER_PAIR * 60_000 },
        async ({ harness }) => {
          // a generator apart from the plan's, so that a plan does not depend on how the runs end
          const random = createRandom(seed + 1);
          const target = await open(harness, random);
          const otherWorkload = startWorkload(harness, WORKERS, random, target.clients);
          target.strike(otherWorkload);
          try {
            await runJudged(target, otherWorkload, pairs, seed);
          } finally {
            otherWorkload.stop();
            await target.close();
          }
        },
      );
  }
}
