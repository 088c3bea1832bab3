/**
 * How long a lock in Redis takes from its release in one process to its grant in the next; and how pipelining in
 * ioredis changes that.
 */

import type { BenchCase, Check, Row } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { HAND_OFFS, handOffRows, measureHandOffs } from "../harness/hand-offs.ts";
import { measureOnRedis, REDIS } from "../harness/redis-rounds.ts";
import type { Spread } from "../harness/stats.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";
import { figurePerRound, grantRates, storeRow } from "../harness/store-rounds.ts";
import {
  BASELINE,
  BROKER,
  DIRECT_HAND_OFF,
  HOLDFAST,
  HOLDFAST_STRICT,
  REDIS_SEMAPHORE,
  REDLOCK_4,
  REDLOCK_BETA,
  SIMPLE_REDIS_MUTEX,
  VERROU,
} from "../implementations/redis.ts";

export const redisHandOff: BenchCase = {
  name: "redis-hand-off",
  title: "Redis, hand-off from process A to the one waiter in process B",
  about:
    "From A's call of release to B's grant, on the machine's monotonic clock; B has waited for 5 to 15 ms, at random, and " +
    `both processes are asleep. Up to ${HAND_OFFS} in a round, fewer of those who take long.`,
  headline: ["p50 us"],
  reasons: {
    "*":
      "The push leaves Redis when the script of the release is through, and the script does more than to delete a key; both " +
      "processes have to be woken, which is most of the time.",
  },
  async run() {
    const names = [
      HOLDFAST,
      DIRECT_HAND_OFF,
      REDLOCK_4,
      REDLOCK_BETA,
      REDIS_SEMAPHORE,
      VERROU,
      "redlock-universal",
      SIMPLE_REDIS_MUTEX,
      BROKER,
    ];
    const rounds = await measureHandOffs(REDIS, names);
    const mediansOf = (name: string): readonly number[] => rounds.get(name)?.p50 ?? [];
    return {
      rows: handOffRows(rounds),
      checks: [
        check(
          "goal",
          `p50 of ${SIMPLE_REDIS_MUTEX}`,
          computeRatio(mediansOf(HOLDFAST), mediansOf(SIMPLE_REDIS_MUTEX)),
          "at most",
          0.45,
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

const PIPELINED = ", auto-pipelined";

export const redisPipelining: BenchCase = {
  name: "redis-pipelining",
  title: "Redis, auto-pipelining of ioredis on and off",
  about:
    "With it every command waits for the end of the event loop's turn, and those of one turn go out together. Why it is not " +
    "advised for locks; a program that passes such a client to the driver gets the second line of each pair.",
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
        rows.push({ name: `${description}: ${row.name}`, figures: row.figures });
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
    const rounds = await measureHandOffs(REDIS, [HOLDFAST, HOLDFAST + PIPELINED]);
    const [unpipelined, pipelined] = [HOLDFAST, HOLDFAST + PIPELINED].map((name) => rounds.get(name)?.p50 ?? []);
    const ratio: Spread = computeRatio(pipelined ?? [], unpipelined ?? []);
    rows.push(...handOffRows(rounds).map((row) => ({ ...row, name: `hand-off: ${row.name}` })));
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
