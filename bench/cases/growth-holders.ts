/** Does a grant cost more when its key has many holders? */

import type { Lock, Lockable, Locks } from "../../src/index.ts";
import type { BenchCase, Row } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import type { GrowthStore } from "../harness/growth-stores.ts";
import { MARIADB, MEMORY, POSTGRES, QUORUM, REDIS, SERVER, SQLITE, ZOOKEEPER } from "../harness/growth-stores.ts";
import { waitForIdle } from "../harness/machine.ts";
import { IS_QUICK_RUN } from "../harness/quick-run.ts";
import type { Spread } from "../harness/stats.ts";
import { computeRatio, computeSpread, quantile } from "../harness/stats.ts";

const COUNTS = IS_QUICK_RUN ? [1, 10] : [1, 10, 100, 1_000, 10_000];
/** Where 10,000 holders would take minutes. */
const FEWER_COUNTS = COUNTS.filter((count) => count <= 1_000);
const ROUNDS = IS_QUICK_RUN ? 2 : 9;
/** The pairs of which the median is taken. */
const PAIRS = IS_QUICK_RUN ? 5 : 20;
/** Claims that are sent at once. */
const BATCH = 100;
/** V8 compiles during the first ones. */
const WARM_UP_PAIRS = IS_QUICK_RUN ? 5 : 500;
const PERMITS = 100_000;
const BOUND = 3;

interface SharedKind {
  readonly name: string;
  toLockable(locks: Locks, key: string): Lockable;
}

const READERS: SharedKind = { name: "readers", toLockable: (locks, key) => locks.rw(key).read };
const SEMAPHORE: SharedKind = { name: "permits", toLockable: (locks, key) => locks.semaphore(key, PERMITS) };

export const growthHolders: readonly BenchCase[] = [
  ...[MEMORY, SERVER, REDIS, POSTGRES, MARIADB, SQLITE].map((store) =>
    createCase(store, [SEMAPHORE, READERS], COUNTS, true),
  ),
  createCase(QUORUM, [READERS], FEWER_COUNTS, true),
  // it grows with the list of the queue, which each claim reads: docs/guide/zookeeper.md says how much
  createCase(ZOOKEEPER, [SEMAPHORE, READERS], FEWER_COUNTS, false),
];

function createCase(
  store: GrowthStore,
  kinds: readonly SharedKind[],
  counts: readonly number[],
  isBounded: boolean,
): BenchCase {
  return {
    name: `growth-holders-${store.id}`,
    title: `${store.title}, one more holder of a key that has many`,
    about:
      "One caller takes one more permit of the key, or one more read lock, and releases it, while another client of its process holds so many. Ratio: to " +
      `a key that has one other holder, in turns of ${PAIRS} pairs, of which the median is taken.`,
    run: () =>
      store.withClients(async (open) => {
        const [holder, caller] = [await open(), await open()];
        const rows: Row[] = [];
        const checks = [];
        for (const kind of kinds) {
          const { rows: own, ratio } = await measureGrowth(kind, holder, caller, counts);
          rows.push(...own);
          const what = `${(counts.at(-1) as number).toLocaleString("en-US")} ${kind.name} against 1`;
          if (isBounded) checks.push(check("goal", what, ratio, "at most", BOUND));
        }
        await Promise.all([holder.close(), caller.close()]);
        return { rows, checks };
      }),
  };
}

async function measureGrowth(
  { name, toLockable }: SharedKind,
  holder: Locks,
  caller: Locks,
  counts: readonly number[],
): Promise<{ readonly rows: readonly Row[]; readonly ratio: Spread }> {
  const [growing, control] = [`${name} growing`, `${name} of one`];
  const handles: Lock[] = [];
  const hold = async (key: string, count: number): Promise<void> => {
    for (let left = count; left > 0; left -= BATCH) {
      const batch = Array.from({ length: Math.min(BATCH, left) }, () => toLockable(holder, key).acquire());
      handles.push(...(await Promise.all(batch)));
    }
  };
  const measure = async (key: string, pairs: number): Promise<number> => {
    const lockable = toLockable(caller, key);
    const times: number[] = [];
    for (let pair = 0; pair < pairs; pair++) {
      const startedAt = performance.now();
      await (await lockable.acquire()).release();
      times.push(1_000 * (performance.now() - startedAt));
    }
    return quantile(times, 0.5);
  };
  await hold(control, 1);
  await measure(control, WARM_UP_PAIRS);
  const rows: Row[] = [];
  let ratio = computeSpread([]);
  for (const count of counts) {
    await hold(growing, count + 1 - handles.length);
    const [many, one]: [number[], number[]] = [[], []];
    for (let round = -1; round < ROUNDS; round++) {
      await waitForIdle();
      // after a pause the first pairs are slower than those that follow
      await measure(control, PAIRS);
      const [ofMany, ofOne] = [await measure(growing, PAIRS), await measure(control, PAIRS)];
      if (round < 0) continue;
      many.push(ofMany);
      one.push(ofOne);
    }
    ratio = computeRatio(many, one);
    const figures = { "us/pair": computeSpread(many), "us/pair, one holder": computeSpread(one), ratio };
    rows.push({ name: `${count.toLocaleString("en-US")} ${name}`, figures });
  }
  return { rows, ratio };
}
