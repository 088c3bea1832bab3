/** What waiters cost a database while nothing changes for them. */

import { setTimeout as delay } from "node:timers/promises";
import type { BenchCase, Check, Row } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import type { BenchStore } from "../harness/bench-store.ts";
import { callsBetween } from "../harness/bench-store.ts";
import { ChildProcessRpc } from "../harness/child-rpc.ts";
import { STATEMENTS, withBenchMariaDb, withCountingPostgres } from "../harness/database.ts";
import { IS_QUICK_RUN } from "../harness/quick-run.ts";
import { CLIENT_PROGRAM } from "../harness/rounds.ts";
import type { SqlKind } from "../harness/sql-rounds.ts";
import { MARIADB_KIND, POSTGRES_KIND } from "../harness/sql-rounds.ts";
import type { Spread } from "../harness/stats.ts";
import { computeSpread } from "../harness/stats.ts";
import type { HoldRequest, QueueRequest } from "../harness/window-handlers.ts";

const COUNTS = [1, 100, 500];
const FEW_WAITERS = 100;
const KEY = "wanted";
/** Keys of one count are none of the next one's: an ended process leaves its claims behind. */
const KEY_RANGE = 1_000;
/** The waiters' lease: their places are prolonged every third of it. */
const TTL_MS = 3_000;
const TICK_MS = TTL_MS / 3;
/** The holder's: it prolongs nothing meanwhile. */
const LONG_TTL_MS = 3_600_000;
/** Claims that are sent at once while the keys are taken. */
const BATCH = 50;
/** Until all have their places, and their first second is over, in which they ask more often. */
const MIN_SETTLE_MS = 2_000;
/**
 * While places are taken at an even pace, the server counts as much in every tick: so each key gets time for its own.
 */
const SETTLE_MS_PER_KEY = 20;
const MAX_SETTLE_MS = 20_000;
/** A tick in which the server counts at least so much of the one before: there are no more places to be taken. */
const SETTLED_SHARE = 0.9;
const WATCH_MS = (IS_QUICK_RUN ? 4 : 6) * TICK_MS;
/** Of MariaDB, which cannot push. */
const MAX_PER_SECOND_WITHOUT_PUSH = 4;

export const sqlIdleWaiters: readonly BenchCase[] = [
  createCase(
    { ...POSTGRES_KIND, withStore: withCountingPostgres },
    "at most one statement in a third of a lease for the process",
    // one more may lie at the edge of what is watched
    (perSecond) => ({
      figure: perSecond * (TICK_MS / 1_000),
      what: "statements in a third of a lease",
      bound: 1 + TICK_MS / WATCH_MS,
    }),
  ),
  createCase(
    { ...MARIADB_KIND, withStore: withBenchMariaDb },
    "at most 4 statements a second for the process",
    (perSecond) => ({ figure: perSecond, what: "statements a second", bound: MAX_PER_SECOND_WITHOUT_PUSH }),
  ),
];

interface Goal {
  readonly figure: number;
  readonly what: string;
  readonly bound: number;
}

/** A process that waits, after its first seconds. */
interface IdleCost {
  readonly name: string;
  readonly statementsPerSecond: number;
  readonly connections: number;
}

function createCase(kind: SqlKind, aim: string, toGoal: (perSecond: number) => Goal): BenchCase {
  const { id, title, names, withStore } = kind;
  return {
    name: `sql-idle-waiters-${id}`,
    title: `${title}, waiters of one process while nothing changes`,
    about:
      "Each waits for a key of its own that another process holds, ours also all for one key. Statements are those that the server has " +
      `counted within ${WATCH_MS / 1_000} s, when all have their places. Our lease is ${TTL_MS / 1_000} s here, so a place in a ` +
      `queue is prolonged every ${TICK_MS / 1_000} s. The goal is ${aim}.`,
    async run() {
      const costs: IdleCost[] = [];
      const checks: Check[] = [];
      await withStore(async (store) => {
        for (const [index, count] of COUNTS.entries()) {
          const cost = await measureOwnKeys(store, names.holdfast, index * KEY_RANGE, count);
          costs.push(cost);
          const { figure, what, bound } = toGoal(cost.statementsPerSecond);
          checks.push(check("goal", `${count} waiting: ${what}`, computeSpread([figure]), "at most", bound));
        }
        costs.push(await measureOneKey(store, names.holdfast, COUNTS.at(-1) as number));
        for (const name of names.thirdParties) costs.push(await measureOneKey(store, name, FEW_WAITERS));
      });
      return { rows: costs.map(toRow), checks };
    },
  };
}

async function measureOwnKeys(store: BenchStore, name: string, from: number, count: number): Promise<IdleCost> {
  return measureIdle(store, `${name}, ${count} waiting for ${count} keys`, name, {
    hold: (holder) => holder.call("keep", { count, from, ttl: LONG_TTL_MS, batch: BATCH } satisfies HoldRequest),
    queue: { count, from, ttl: TTL_MS },
  });
}

async function measureOneKey(store: BenchStore, name: string, count: number): Promise<IdleCost> {
  return measureIdle(store, `${name}, ${count} waiting for one key`, name, {
    hold: (holder) => holder.call("take", KEY),
    queue: { count, ttl: TTL_MS, key: KEY },
  });
}

interface IdleLoad {
  readonly hold: (holder: ChildProcessRpc) => Promise<unknown>;
  readonly queue: QueueRequest;
}

async function measureIdle(
  store: BenchStore,
  label: string,
  name: string,
  { hold, queue }: IdleLoad,
): Promise<IdleCost> {
  const [holder, waiter] = [1, 2].map(() => new ChildProcessRpc(CLIENT_PROGRAM, [name, store.address])) as [
    ChildProcessRpc,
    ChildProcessRpc,
  ];
  try {
    await hold(holder);
    await waiter.call("queue", queue);
    await waitUntilSettled(store, queue.key === undefined ? queue.count : 1);
    const statementsPerSecond = await measureStatements(store, WATCH_MS);
    return { name: label, statementsPerSecond, connections: waiter.countConnections() };
  } finally {
    await Promise.all([holder.end(), waiter.end()]);
  }
}

async function waitUntilSettled(store: BenchStore, keys: number): Promise<void> {
  await delay(MIN_SETTLE_MS + SETTLE_MS_PER_KEY * keys);
  const endsAt = performance.now() + MAX_SETTLE_MS;
  let last = Number.POSITIVE_INFINITY;
  while (performance.now() < endsAt) {
    const statements = await measureStatements(store, TICK_MS);
    if (statements >= last * SETTLED_SHARE) return;
    last = statements;
  }
}

/** Per second. */
async function measureStatements(store: BenchStore, ms: number): Promise<number> {
  const [before, startedAt] = [await store.work(), performance.now()];
  await delay(ms);
  const after = await store.work();
  return callsBetween(before, after, [STATEMENTS]) / ((performance.now() - startedAt) / 1_000);
}

function toRow({ name, statementsPerSecond, connections }: IdleCost): Row {
  const figures: Record<string, Spread> = {
    "statements/s": computeSpread([statementsPerSecond]),
    connections: computeSpread([connections]),
  };
  return { name, figures };
}
