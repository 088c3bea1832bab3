/**
 * Two faults at once: every pair of the eight faults strikes runs of `holdfast run`, on our own server and on Redis with
 * Sentinels. The kernel's locks and a register that refuses lower tokens judge (works.ts). HOLDFAST_SEED repeats a plan.
 */

import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import type { Random } from "../../src/conformance/random.ts";
import { randomOf } from "../../src/conformance/random.ts";
import type { Scene } from "../crash/scene.ts";
import { LONG, test } from "../crash/scene.ts";
import { until } from "../support/wait-for.ts";
import type { FaultName, Pair, Target } from "./faults.ts";
import { FAULTS, pairsOf, planOf } from "./faults.ts";
import { FAULTS_ON_SOCKET, FAULTS_ON_TCP, ownServer } from "./own-server.ts";
import { redisWithSentinels } from "./redis-sentinels.ts";
import { whyNoSmallDisk } from "./small-disk.ts";
import type { Works } from "./works.ts";
import { works } from "./works.ts";

const TIMES = LONG ? 10 : 1;
const WORKERS = 6;
/** From the repair to the next command that enters: loose, the machine may be busy with something else. */
const PROGRESS_MS = 40_000;
const SEED = Number(process.env.HOLDFAST_SEED ?? Date.now() % 1_000_000);

interface Case {
  readonly what: string;
  readonly pairs: readonly Pair[];
  /** Plans that found something once; the long form strikes them, too. */
  readonly knownSeeds: readonly number[];
  open(here: Scene, random: Random): Promise<Target>;
}

const includes = (pair: Pair, faults: readonly FaultName[]): boolean => pair.some((fault) => faults.includes(fault));

/** In the short form each pair strikes one of the stores, the plainest that knows both faults. */
const CASES: readonly Case[] = [
  {
    what: "our server on a Unix socket",
    pairs: pairsOf(FAULTS_ON_SOCKET),
    // wrapper and server killed: the command worked on beside the next one
    knownSeeds: [1, 4, 6],
    open: (here, random) => ownServer(here, random, "socket"),
  },
  {
    what: "our server on TCP",
    pairs: pairsOf(FAULTS_ON_TCP).filter((pair) => LONG || includes(pair, ["cut"])),
    knownSeeds: [],
    open: (here, random) => ownServer(here, random, "TCP"),
  },
  {
    what: "Redis with Sentinels",
    pairs: pairsOf(FAULTS).filter((pair) => LONG || includes(pair, ["cut subscribers", "fail over"])),
    // an overlap with the scripts as they were before each was granted in one place only
    knownSeeds: [11],
    open: redisWithSentinels,
  },
];

async function strike(target: Target, pairs: readonly Pair[], they: Works, seed: number): Promise<number> {
  const random = randomOf(seed);
  let struck = 0;
  for (const [one, other] of planOf(pairs, TIMES, random)) {
    // what is not possible just now is tried again: a fail-over is refused while another one is under way
    await until(() => target.inject(one), { within: 20_000, what: `"${one}" to be possible` });
    await delay(random.int(300));
    await until(() => target.inject(other), { within: 20_000, what: `"${other}" to be possible` });
    await delay(random.int(500));
    await target.heal();
    struck++;
    const before = they.entered();
    await until(() => they.entered() > before || they.faults().length > 0, {
      within: PROGRESS_MS,
      what: `a run after "${one}" and "${other}" on ${target.name}`,
    });
    if (they.faults().length > 0) throw new Error(`"${one}", then "${other}": ${they.faults().join("; ")}`);
  }
  return struck;
}

async function judged(target: Target, they: Works, pairs: readonly Pair[], seed: number): Promise<void> {
  const started = performance.now();
  const struck = await strike(target, pairs, they, seed);
  await they.finish();
  expect(they.faults()).toEqual([]);
  expect(struck).toBe(pairs.length * TIMES);
  const seconds = ((performance.now() - started) / 1_000).toFixed(0);
  const ends = Object.entries(they.ends()).map(([code, count]) => `${count} x ${code}`);
  console.log(
    `figure: nemesis on ${target.name} (seed ${seed}): ${struck} pairs of faults in ${seconds} s, ` +
      `${they.entered()} commands entered; runs by exit code: ${ends.join(", ")}`,
  );
}

const skip = whyNoSmallDisk === null ? "" : `: ${whyNoSmallDisk}, skipped`;

for (const { what, pairs, knownSeeds, open } of CASES) {
  for (const seed of LONG ? [SEED, ...knownSeeds] : [SEED]) {
    test
      .skipIf(skip !== "")
      .concurrent(
        `each pair of faults on ${what}, seed ${seed}: no two commands at once, tokens rise, runs go on${skip}`,
        { timeout: pairs.length * TIMES * 60_000 },
        async ({ here }) => {
          // apart from the plan's, so that a plan stays the same however the runs turn out
          const random = randomOf(seed + 1);
          const target = await open(here, random);
          const they = works(here, WORKERS, random, target.clients);
          target.strike(they);
          try {
            await judged(target, they, pairs, seed);
          } finally {
            they.stop();
            await target.close();
          }
        },
      );
  }
}
