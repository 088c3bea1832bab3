/** How long a lock in Redis is nobody's on its way from one process to the next; and what ioredis's pipelining does to it. */

import { setTimeout as delay } from "node:timers/promises";
import type { BenchCase, Check, Row } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import type { ChildProcessRpc } from "../harness/child-rpc.ts";
import { IS_QUICK_RUN } from "../harness/quick-run.ts";
import { withBenchRedis } from "../harness/redis.ts";
import { measureOnRedis } from "../harness/redis-rounds.ts";
import type { Spread } from "../harness/stats.ts";
import { computeRatio, computeSpread, quantile } from "../harness/stats.ts";
import type { StoreProcessGroup } from "../harness/store-rounds.ts";
import { figurePerRound, grantRates, ROUNDS, runRounds, storeRow, withStoreGroups } from "../harness/store-rounds.ts";
import {
  BASELINE,
  HOLDFAST,
  HOLDFAST_STRICT,
  REDIS_SEMAPHORE,
  REDLOCK_BETA,
  SIMPLE_REDIS_MUTEX,
} from "../implementations/redis.ts";

const BROKER = "live-mutex";
/** Of a round; a contestant that hands over a few times a second is not waited for. */
const ROUND_MS = IS_QUICK_RUN ? 300 : 600;
const MAX_WAIT_MS = 30;

export const redisHandOff: BenchCase = {
  name: "redis-hand-off",
  title: "Redis, hand-off from process A to the one waiter in process B",
  about:
    "From A's call of release to B's grant, on the machine's monotonic clock; B has waited for 5 to 15 ms, at random, and " +
    `both processes are asleep. Up to ${MAX_WAIT_MS} in a round, fewer of those who take long.`,
  async run() {
    const names = [
      HOLDFAST,
      REDLOCK_BETA,
      REDIS_SEMAPHORE,
      "@verrou/core",
      "redlock-universal",
      SIMPLE_REDIS_MUTEX,
      BROKER,
    ];
    const rounds = await measureHandOffs(names);
    const mediansOf = (name: string): readonly number[] => rounds.get(name)?.p50 ?? [];
    return {
      rows: toRows(rounds),
      checks: [
        check(
          "goal",
          `p50 of ${SIMPLE_REDIS_MUTEX}`,
          computeRatio(mediansOf(HOLDFAST), mediansOf(SIMPLE_REDIS_MUTEX)),
          "at most",
          0.6,
        ),
        check(
          "goal",
          `p50 of ${REDIS_SEMAPHORE}`,
          computeRatio(mediansOf(HOLDFAST), mediansOf(REDIS_SEMAPHORE)),
          "at most",
          0.15,
        ),
      ],
    };
  },
};

interface HandOffFigures {
  readonly p50: number[];
  readonly p99: number[];
  count: number;
}

async function measureHandOffs(names: readonly string[]): Promise<ReadonlyMap<string, HandOffFigures>> {
  const rounds = new Map<string, HandOffFigures>(names.map((name) => [name, { p50: [], p99: [], count: 0 }]));
  await withBenchRedis((server) =>
    withStoreGroups(names, 2, server, (groups) =>
      runRounds(groups, ROUNDS, async (group, isCounted) => {
        const gaps = await measureGaps(group);
        const handOffFigures = rounds.get(group.name);
        if (!isCounted || handOffFigures === undefined) return;
        handOffFigures.p50.push(quantile(gaps, 0.5));
        handOffFigures.p99.push(quantile(gaps, 0.99));
        handOffFigures.count += gaps.length;
      }),
    ),
  );
  return rounds;
}

function toRows(rounds: ReadonlyMap<string, HandOffFigures>): Row[] {
  return [...rounds].map(([contestant, { p50, p99, count }]) => ({
    contestant,
    figures: { "p50 us": computeSpread(p50), "p99 us": computeSpread(p99), "hand-offs": computeSpread([count]) },
  }));
}

/** Microseconds each hand-off took, the two taking turns. */
async function measureGaps({ name, clients }: StoreProcessGroup): Promise<number[]> {
  const key = `handed:${name}`;
  let [from, to] = clients as [ChildProcessRpc, ChildProcessRpc];
  const all: number[] = [];
  await to.call("ready");
  await from.call("take", key);
  const endsAt = performance.now() + ROUND_MS;
  while (all.length < MAX_WAIT_MS && performance.now() < endsAt) {
    const granted = to.call<number>("take", key);
    await delay(5 + 10 * Math.random());
    const releasedAt = await from.call<number>("give");
    all.push((await granted) - releasedAt);
    [from, to] = [to, from];
  }
  await from.call("give");
  return all;
}

const PIPELINED = ", auto-pipelined";

export const redisPipelining: BenchCase = {
  name: "redis-pipelining",
  title: "Redis, auto-pipelining of ioredis on and off",
  about:
    "With it every command waits for the end of the event loop's turn, and those of one turn go out together. Why it is not " +
    "advised for locks; whoever hands us a client that has it gets the second line of each pair.",
  async run() {
    const rows: Row[] = [];
    const checks: Check[] = [];
    const compare = async (
      description: string,
      names: readonly string[],
      { callers, keys, processes, timed }: (typeof SHAPES)[number]["shape"],
    ): Promise<void> => {
      const comparedNames = names.flatMap((name) => [name, name + PIPELINED]);
      const rounds = await measureOnRedis(comparedNames, { processes, load: { callers, keys, timed }, ms: 250 });
      for (const name of comparedNames) {
        const row = storeRow(name, rounds, ["rate", "p50", "commands", "clientCpu", "serverCpu"]);
        rows.push({ contestant: `${description}: ${row.contestant}`, figures: row.figures });
      }
      // where many are under way at once it may go either way
      for (const name of callers === 64 ? [] : names) {
        const ratio = computeRatio(grantRates(rounds(name + PIPELINED)), grantRates(rounds(name)));
        checks.push(check("goal", `${description}: ${name}: rate with it of the rate without`, ratio, "at most", 1));
      }
      if (callers === 1)
        checks.push(
          exactCommands(names[0] as string, figurePerRound(rounds((names[0] as string) + PIPELINED), "sent")),
        );
    };
    for (const { what, names, shape } of SHAPES) await compare(what, names, shape);
    const rounds = await measureHandOffs([HOLDFAST, HOLDFAST + PIPELINED]);
    const [unpipelined, pipelined] = [HOLDFAST, HOLDFAST + PIPELINED].map((name) => rounds.get(name)?.p50 ?? []);
    const ratio: Spread = computeRatio(pipelined ?? [], unpipelined ?? []);
    rows.push(...toRows(rounds).map((row) => ({ ...row, contestant: `hand-off: ${row.contestant}` })));
    return { rows, checks: [...checks, check("goal", "hand-off: p50 with it of p50 without", ratio, "at least", 1)] };
  },
};

const SHAPES = [
  {
    what: "one caller",
    names: [HOLDFAST, BASELINE],
    shape: { processes: 1, callers: 1, keys: 1, timed: "pair" },
  },
  {
    what: "64 callers on 10,000 keys",
    names: [HOLDFAST, BASELINE],
    shape: { processes: 1, callers: 64, keys: 10_000, timed: "nothing" },
  },
  {
    what: "4 processes with 8 callers on one key",
    names: [HOLDFAST_STRICT],
    shape: { processes: 4, callers: 8, keys: 1, timed: "wait" },
  },
] as const;

function exactCommands(name: string, commands: readonly number[]): Check {
  return check("gate", `${name}${PIPELINED}: commands a pair`, computeSpread(commands), "exactly", 2);
}
