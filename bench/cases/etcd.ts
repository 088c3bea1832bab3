/** Holdfast on etcd against etcd3's lock and what two requests take, on the same server. */

import type { BenchCase, Findings } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { ETCD, measureOnEtcd } from "../harness/etcd.ts";
import { HAND_OFFS, handOffRows, measureHandOffs } from "../harness/hand-offs.ts";
import { starvedCallers } from "../harness/rounds.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";
import type { Column, LoadOptions } from "../harness/store-rounds.ts";
import { grantRates, storeRow } from "../harness/store-rounds.ts";
import { BARE_PAIR, ETCD3, EVENT_FLOOR, HOLDFAST, HOLDFAST_STRICT } from "../implementations/etcd.ts";

const METHOD = "One etcd for all, as it comes: each write is synced to the disk. etcd3 asks again every 10 ms.";
const COLUMNS: readonly Column[] = ["rate", "p50", "p99", "clientCpu", "serverCpu"];
const CONTENDED_COLUMNS: readonly Column[] = ["rate", "p50", "p99", "longest", "starved", "clientCpu", "serverCpu"];
/** V8 compiles during the first pairs. */
const WARM_UP_MS = 3_000;

export const etcdUncontended: BenchCase = {
  name: "etcd-alone",
  title: "etcd, one caller, uncontended",
  about: `One caller, one key, in a loop; a pair is timed whole. etcd3 makes a lease for each lock. ${METHOD}`,
  headline: ["grants/s"],
  async run() {
    const names = [HOLDFAST, BARE_PAIR, ETCD3];
    const load = { callers: 1, keys: 1, timed: "pair" } as const;
    const rounds = await measureOnEtcd(names, { processes: 1, load, ms: 400, warmUpMs: WARM_UP_MS });
    const rate = computeRatio(grantRates(rounds(HOLDFAST)), grantRates(rounds(BARE_PAIR)));
    return {
      rows: names.map((name) => storeRow(name, rounds, COLUMNS)),
      checks: [check("goal", `rate of ${BARE_PAIR}`, rate, "at least", 0.8)],
    };
  },
};

export const etcdContended: BenchCase = {
  name: "etcd-64",
  title: "etcd, 64 callers of one process on one key",
  about:
    "Nothing is done under the lock; each caller asks again at once. p50 and p99 are of the wait for a grant. With local " +
    `hand-off, and in strict order. ${METHOD}`,
  headline: ["grants/s", "callers with none"],
  run: () => measureContended({ processes: 1, load: { callers: 64, keys: 1, timed: "wait" }, ms: 600 }),
};

export const etcdMultiProcess: BenchCase = {
  name: "etcd-processes",
  title: "etcd, 4 processes with 8 callers each on one key",
  about: `As before, with 32 callers in four processes. ${METHOD}`,
  headline: ["grants/s", "callers with none"],
  run: () => measureContended({ processes: 4, load: { callers: 8, keys: 1, timed: "wait" }, ms: 600 }),
};

export const etcdHandOff: BenchCase = {
  name: "etcd-hand-off",
  title: "etcd, hand-off from process A to the one waiter in process B",
  about:
    "From A's call of release to B's grant, on the machine's monotonic clock; B has waited for 5 to 15 ms, at random. " +
    `Up to ${HAND_OFFS} in a round. ${METHOD}`,
  headline: ["p50 us"],
  async run() {
    const rounds = await measureHandOffs(ETCD, [HOLDFAST, EVENT_FLOOR, ETCD3]);
    const mediansOf = (name: string): readonly number[] => rounds.get(name)?.p50 ?? [];
    const ratio = computeRatio(mediansOf(HOLDFAST), mediansOf(EVENT_FLOOR));
    return {
      rows: handOffRows(rounds),
      checks: [check("goal", `p50 of ${EVENT_FLOOR}`, ratio, "at most", 1.5)],
    };
  },
};

async function measureContended(options: LoadOptions): Promise<Findings> {
  const names = [HOLDFAST, HOLDFAST_STRICT, ETCD3];
  const rounds = await measureOnEtcd(names, { ...options, warmUpMs: WARM_UP_MS, fair: true });
  const rate = computeRatio(grantRates(rounds(HOLDFAST)), grantRates(rounds(ETCD3)));
  return {
    rows: names.map((name) => storeRow(name, rounds, CONTENDED_COLUMNS)),
    checks: [
      check("goal", "rate of etcd3", rate, "at least", 20),
      check("gate", "callers that got nothing", computeSpread(starvedCallers(rounds(HOLDFAST))), "exactly", 0),
    ],
  };
}
