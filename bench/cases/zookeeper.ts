/** Holdfast on ZooKeeper against Curator's InterProcessMutex on the same server. */

import type { BenchCase, Check, Findings } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { starvedCallers } from "../harness/rounds.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";
import { grantRates } from "../harness/store-rounds.ts";
import type { ZooKeeperOptions } from "../harness/zookeeper-rounds.ts";
import { CURATOR, measureOnZooKeeper, zooKeeperRow } from "../harness/zookeeper-rounds.ts";
import { HOLDFAST, HOLDFAST_CACHED, HOLDFAST_STRICT } from "../implementations/zookeeper.ts";

const METHOD =
  "One ZooKeeper for all, as it comes: each write is synced to the disk. Curator in a JVM, a thread a caller.";
/** What a lock of that kind, with a local lock in front of ZooKeeper, was said to reach: lock and unlock a second. */
const SHARED_FILE_NAME = 3_000;

export const zooKeeperUncontended: BenchCase = {
  name: "zookeeper-alone",
  title: "ZooKeeper, one caller, uncontended",
  about: `One caller, one key, in a loop; a pair is timed whole. ${METHOD}`,
  headline: ["grants/s"],
  reasons: {
    "*": "Both write twice and wait for the disk twice a pair; the rest of the time is CPU, of two cores that three processes share.",
  },
  async run() {
    const load = { callers: 1, keys: 1, timed: "pair" } as const;
    const rounds = await measureOnZooKeeper([HOLDFAST, CURATOR], { processes: 1, load, ms: 600 });
    return {
      rows: [HOLDFAST, CURATOR].map((name) => zooKeeperRow(name, rounds(name))),
      checks: [
        check(
          "goal",
          "rate of Curator",
          computeRatio(grantRates(rounds(HOLDFAST)), grantRates(rounds(CURATOR))),
          "at least",
          1,
        ),
      ],
    };
  },
};

export const zooKeeperManyKeys: BenchCase = {
  name: "zookeeper-wide",
  title: "ZooKeeper, 64 callers on 640 keys",
  about: `64 callers of one process, each on keys that no other caller wants then. ${METHOD}`,
  headline: ["grants/s"],
  async run() {
    const load = { callers: 64, keys: 640, timed: "nothing" } as const;
    const rounds = await measureOnZooKeeper([HOLDFAST, CURATOR], { processes: 1, load, ms: 600 });
    return {
      rows: [HOLDFAST, CURATOR].map((name) => zooKeeperRow(name, rounds(name))),
      checks: [
        check(
          "goal",
          "rate of Curator",
          computeRatio(grantRates(rounds(HOLDFAST)), grantRates(rounds(CURATOR))),
          "at least",
          1,
        ),
      ],
    };
  },
};

export const zooKeeperContended: BenchCase = {
  name: "zookeeper-64",
  title: "ZooKeeper, 64 callers of one process on one key",
  about:
    "Nothing is done under the lock; each caller asks again at once. p50 and p99 are of the wait for a grant. With local " +
    `hand-off, and in strict order. ${METHOD}`,
  headline: ["grants/s"],
  async run() {
    const load = { callers: 64, keys: 1, timed: "wait" } as const;
    const { rows, checks, holdfastRates } = await measureContended({ processes: 1, load, ms: 700 }, 15);
    const s3 = check(
      "goal",
      "lock and unlock a second, as a published recipe reached",
      computeSpread(holdfastRates),
      "at least",
      SHARED_FILE_NAME,
    );
    return { rows, checks: [...checks, s3] };
  },
};

export const zooKeeperMultiProcess: BenchCase = {
  name: "zookeeper-processes",
  title: "ZooKeeper, 4 processes with 8 callers each on one key",
  about: `As before, with 32 callers in four processes. ${METHOD}`,
  headline: ["grants/s"],
  run: () => measureContended({ processes: 4, load: { callers: 8, keys: 1, timed: "wait" }, ms: 700 }, 8),
};

export const zooKeeperCached: BenchCase = {
  name: "zookeeper-cached",
  title: "ZooKeeper, a cached lock used again by its process",
  about: `One caller, one key, in a loop, with \`cache: "10s"\` and without it. ${METHOD}`,
  headline: ["grants/s"],
  async run() {
    const names = [HOLDFAST_CACHED, HOLDFAST, CURATOR];
    const load = { callers: 1, keys: 1, timed: "nothing" } as const;
    const rounds = await measureOnZooKeeper(names, { processes: 1, load, ms: 600 });
    const rate = computeRatio(grantRates(rounds(HOLDFAST_CACHED)), grantRates(rounds(HOLDFAST)));
    return {
      rows: names.map((name) => zooKeeperRow(name, rounds(name))),
      checks: [check("goal", "rate of uncached", rate, "at least", 100)],
    };
  },
};

async function measureContended(
  options: ZooKeeperOptions,
  goal: number,
): Promise<Findings & { readonly holdfastRates: readonly number[] }> {
  const names = [HOLDFAST, HOLDFAST_STRICT, CURATOR];
  const rounds = await measureOnZooKeeper(names, options);
  const [holdfast, strict, curator] = names.map((name) => grantRates(rounds(name))) as [number[], number[], number[]];
  const noneStarved = (description: string, name: string): Check =>
    check("gate", `${description}callers that got nothing`, computeSpread(starvedCallers(rounds(name))), "exactly", 0);
  return {
    holdfastRates: holdfast,
    rows: names.map((name) => zooKeeperRow(name, rounds(name))),
    checks: [
      check("goal", "rate of Curator", computeRatio(holdfast, curator), "at least", goal),
      noneStarved("", HOLDFAST),
      check("goal", "strict order: rate of Curator", computeRatio(strict, curator), "at least", 1),
      noneStarved("strict order: ", HOLDFAST_STRICT),
    ],
  };
}
