/** Ours on ZooKeeper against Curator's InterProcessMutex on the same server. */

import type { BenchCase, Check, Findings } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";
import type { ZooKeeperOptions } from "../harness/zookeeper-rounds.ts";
import { CURATOR, grantRates, measureOnZooKeeper, starvedCallers, zooKeeperRow } from "../harness/zookeeper-rounds.ts";
import { HOLDFAST, HOLDFAST_CACHED, HOLDFAST_STRICT } from "../implementations/zookeeper.ts";

const METHOD =
  "One ZooKeeper for all, as it comes: each write is synced to the disk. Curator in a JVM, a thread a caller.";
/** What a lock of that kind, with a local lock in front of ZooKeeper, was said to reach: lock and unlock a second. */
const SHARED_FILE_NAME = 3_000;

export const zooKeeperUncontended: BenchCase = {
  name: "zookeeper-alone",
  title: "ZooKeeper, one caller, uncontended",
  about: `One caller, one key, in a loop; a pair is timed whole. ${METHOD}`,
  page: {
    theme: "A free lock",
    measures: "One caller takes a free lock in ZooKeeper and releases it, again and again.",
    charts: [{ title: "A free lock in ZooKeeper: pairs a second", column: "grants/s", better: "more" }],
  },
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
  page: {
    theme: "Many locks",
    measures: "64 callers of one process lock 640 different keys in ZooKeeper.",
    charts: [{ title: "64 callers on 640 keys in ZooKeeper: pairs a second", column: "grants/s", better: "more" }],
  },
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
  page: {
    theme: "Many callers, one lock",
    measures: "64 callers of one process want the same lock in ZooKeeper all the time.",
    charts: [{ title: "64 callers, one lock in ZooKeeper: grants a second", column: "grants/s", better: "more" }],
  },
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
  page: {
    theme: "Many callers, one lock",
    measures: "4 processes with 8 callers each want the same lock in ZooKeeper all the time.",
    charts: [
      { title: "4 processes of 8 callers, one lock in ZooKeeper: grants a second", column: "grants/s", better: "more" },
    ],
  },
  run: () => measureContended({ processes: 4, load: { callers: 8, keys: 1, timed: "wait" }, ms: 700 }, 8),
};

export const zooKeeperCached: BenchCase = {
  name: "zookeeper-cached",
  title: "ZooKeeper, a cached lock used again by its process",
  about: `One caller, one key, in a loop, with \`cache: "10s"\` and without it. ${METHOD}`,
  page: {
    theme: "A lock that its process used before",
    measures: "One caller uses the same lock in ZooKeeper again and again, with the option `cache`.",
    charts: [{ title: "A lock in ZooKeeper, used again: pairs a second", column: "grants/s", better: "more" }],
  },
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
  const nobodyStarved = (description: string, name: string): Check =>
    check("gate", `${description}callers that got nothing`, computeSpread(starvedCallers(rounds(name))), "exactly", 0);
  return {
    holdfastRates: holdfast,
    rows: names.map((name) => zooKeeperRow(name, rounds(name))),
    checks: [
      check("goal", "rate of Curator", computeRatio(holdfast, curator), "at least", goal),
      nobodyStarved("", HOLDFAST),
      check("goal", "strict order: rate of Curator", computeRatio(strict, curator), "at least", 1),
      nobodyStarved("strict order: ", HOLDFAST_STRICT),
    ],
  };
}
