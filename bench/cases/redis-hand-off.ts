/** How long a lock in Redis is nobody's on its way from one process to the next; and what ioredis's pipelining does to it. */

import { setTimeout as delay } from "node:timers/promises";
import { BETA, FLOOR, OURS, SEMAPHORE, SIMPLE, STRICT } from "../contestants/redis.ts";
import type { Child } from "../harness/calls.ts";
import type { BenchCase, Check, Row } from "../harness/case.ts";
import { check } from "../harness/case.ts";
import { withRedis } from "../harness/redis.ts";
import type { RedisTeam } from "../harness/redis-rounds.ts";
import { eachRound, of, onRedis, QUICK, ratesOf, redisRow, withTeams } from "../harness/redis-rounds.ts";
import type { Spread } from "../harness/stats.ts";
import { quantile, ratioOf, spreadOf } from "../harness/stats.ts";

const BROKER = "live-mutex";
/** Of a round; a contestant that hands over a few times a second is not waited for. */
const ROUND_MS = QUICK ? 300 : 600;
const MOST = 30;

export const redisHandOff: BenchCase = {
  name: "redis-hand-off",
  title: "Redis, hand-off from process A to the one waiter in process B",
  about:
    "From A's call of release to B's grant, on the machine's monotonic clock; B has waited for 5 to 15 ms, at random, and " +
    `both processes are asleep. Up to ${MOST} in a round, fewer of those who take long.`,
  async run() {
    const names = [OURS, BETA, SEMAPHORE, "@verrou/core", "redlock-universal", SIMPLE, BROKER];
    const rounds = await handOffs(names);
    const half = (name: string): readonly number[] => rounds.get(name)?.p50 ?? [];
    return {
      rows: rowsOf(rounds),
      checks: [
        check("goal", `p50 of ${SIMPLE}`, ratioOf(half(OURS), half(SIMPLE)), "at most", 0.6),
        check("goal", `p50 of ${SEMAPHORE}`, ratioOf(half(OURS), half(SEMAPHORE)), "at most", 0.15),
      ],
    };
  },
};

interface HandOffs {
  readonly p50: number[];
  readonly p99: number[];
  count: number;
}

async function handOffs(names: readonly string[]): Promise<ReadonlyMap<string, HandOffs>> {
  const rounds = new Map<string, HandOffs>(names.map((name) => [name, { p50: [], p99: [], count: 0 }]));
  await withRedis((server) =>
    withTeams(names, 2, server, (teams) =>
      eachRound(teams, async (team, isCounted) => {
        const took = await gaps(team);
        const found = rounds.get(team.name);
        if (!isCounted || found === undefined) return;
        found.p50.push(quantile(took, 0.5));
        found.p99.push(quantile(took, 0.99));
        found.count += took.length;
      }),
    ),
  );
  return rounds;
}

function rowsOf(rounds: ReadonlyMap<string, HandOffs>): Row[] {
  return [...rounds].map(([contestant, { p50, p99, count }]) => ({
    contestant,
    figures: { "p50 us": spreadOf(p50), "p99 us": spreadOf(p99), "hand-offs": spreadOf([count]) },
  }));
}

/** Microseconds each hand-off took, the two taking turns. */
async function gaps({ name, clients }: RedisTeam): Promise<number[]> {
  const key = `handed:${name}`;
  let [from, to] = clients as [Child, Child];
  const all: number[] = [];
  await to.call("ready");
  await from.call("take", key);
  const until = performance.now() + ROUND_MS;
  while (all.length < MOST && performance.now() < until) {
    const granted = to.call<number>("take", key);
    await delay(5 + 10 * Math.random());
    const released = await from.call<number>("give");
    all.push((await granted) - released);
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
      what: string,
      names: readonly string[],
      { callers, keys, processes, timed }: (typeof SHAPES)[number]["shape"],
    ): Promise<void> => {
      const both = names.flatMap((name) => [name, name + PIPELINED]);
      const rounds = await onRedis(both, { processes, load: { callers, keys, timed }, ms: 250 });
      for (const name of both) {
        const row = redisRow(name, rounds, ["rate", "p50", "commands", "clientCpu", "serverCpu"]);
        rows.push({ contestant: `${what}: ${row.contestant}`, figures: row.figures });
      }
      // where many are under way at once it may go either way
      for (const name of callers === 64 ? [] : names) {
        const ratio = ratioOf(ratesOf(rounds(name + PIPELINED)), ratesOf(rounds(name)));
        checks.push(check("goal", `${what}: ${name}: rate with it of the rate without`, ratio, "at most", 1));
      }
      if (callers === 1) checks.push(exact(names[0] as string, of(rounds((names[0] as string) + PIPELINED), "sent")));
    };
    for (const { what, names, shape } of SHAPES) await compare(what, names, shape);
    const rounds = await handOffs([OURS, OURS + PIPELINED]);
    const [off, on] = [OURS, OURS + PIPELINED].map((name) => rounds.get(name)?.p50 ?? []);
    const ratio: Spread = ratioOf(on ?? [], off ?? []);
    rows.push(...rowsOf(rounds).map((row) => ({ ...row, contestant: `hand-off: ${row.contestant}` })));
    return { rows, checks: [...checks, check("goal", "hand-off: p50 with it of p50 without", ratio, "at least", 1)] };
  },
};

const SHAPES = [
  {
    what: "one caller",
    names: [OURS, FLOOR],
    shape: { processes: 1, callers: 1, keys: 1, timed: "pair" },
  },
  {
    what: "64 callers on 10,000 keys",
    names: [OURS, FLOOR],
    shape: { processes: 1, callers: 64, keys: 10_000, timed: "nothing" },
  },
  {
    what: "4 processes with 8 callers on one key",
    names: [STRICT],
    shape: { processes: 4, callers: 8, keys: 1, timed: "wait" },
  },
] as const;

function exact(name: string, commands: readonly number[]): Check {
  return check("gate", `${name}${PIPELINED}: commands a pair`, spreadOf(commands), "exactly", 2);
}
