/** What it costs in Redis to hold many locks, and to wait for one. */

import { setTimeout as delay } from "node:timers/promises";
import { OURS, REDIS_ENTRANTS, REDIS_RIVALS } from "../contestants/redis.ts";
import { Child } from "../harness/calls.ts";
import type { BenchCase, Check, Row } from "../harness/case.ts";
import { check } from "../harness/case.ts";
import type { BenchRedis, RedisWork } from "../harness/redis.ts";
import { callsBetween, withRedises } from "../harness/redis.ts";
import { QUICK } from "../harness/redis-rounds.ts";
import { clientProgram } from "../harness/rounds.ts";
import type { Spread } from "../harness/stats.ts";
import { ratioOf, spreadOf } from "../harness/stats.ts";

const LOCKS = QUICK ? 2_000 : 10_000;
const TTL = 5_000;
/** We prolong after a third of the lease, rivals when a tenth to a fifth of it is left. */
const TICK_MS = TTL / 3;
const WINDOWS = QUICK ? 2 : 5;
const WATCH_MS = 5 * TICK_MS;
const PATIENCE_MS = 30_000;

/** A process that keeps what it keeps, with a Redis to itself: what it costs can be told while others do the same. */
interface Keeper {
  readonly name: string;
  readonly client: Child;
  readonly server: BenchRedis;
}

/** Per window of `watchMs`. */
interface Cost {
  readonly commands: Spread;
  readonly clientCpu: Spread;
  readonly serverCpu: Spread;
}

export const redisHeld: BenchCase = {
  name: "redis-held",
  title: `Redis, ${LOCKS.toLocaleString("en-US")} held locks of one process, prolonged by themselves`,
  about:
    `A lease of ${TTL / 1_000} s for everybody, watched for ${WINDOWS} times ${Math.round(WATCH_MS / 1_000)} s, all at the same ` +
    "time, each with a Redis of its own. We prolong every third of the lease, the rivals every 4 to 4.5 s: within a window they " +
    "do it twice, we five times.",
  async run() {
    const able = [OURS, ...Object.keys(REDIS_RIVALS)].filter((name) => REDIS_ENTRANTS[name]?.keeper !== undefined);
    const costs = await watched(able, WATCH_MS, ({ client }) => client.call("keep", { count: LOCKS, ttl: TTL }));
    const ours = oursOf(costs.get(OURS));
    const rivals = [...costs].flatMap(([name, cost]) => (name === OURS || cost instanceof Error ? [] : [cost]));
    const best = Array.from({ length: WINDOWS }, (_, at) =>
      Math.min(...rivals.map(({ clientCpu }) => clientCpu.rounds[at] as number)),
    );
    const ticks = WATCH_MS / TICK_MS;
    const perTick = spreadOf(ours.commands.rounds.map((commands) => commands / ticks));
    const unable = Object.keys(REDIS_RIVALS).filter((name) => !able.includes(name));
    return {
      rows: [
        ...rowsOf(costs, WATCH_MS),
        ...[...unable, "live-mutex"].map((name) => ({
          contestant: `${name} (prolongs nothing by itself)`,
          figures: {},
        })),
      ],
      checks: [
        // a round of renewals may fall into the window before or after its own
        check("gate", "commands a tick", spreadOf([perTick.median]), "at most", LOCKS / 500 + 1),
        check("gate", "commands", ours.commands, "at least", 1),
        check("goal", "client CPU of the best rival", ratioOf(ours.clientCpu.rounds, best), "at most", 0.5),
      ],
    };
  },
};

const WAITERS = [10, 100, 1_000];
const FEW = 100;
const KEY = "wanted";
const SHORT_MS = 2 * TICK_MS;

export const redisWaiting: BenchCase = {
  name: "redis-waiting",
  title: "Redis, processes that wait for one key",
  about:
    `A second process keeps the key for all the time. Our lease is ${TTL / 1_000} s here, so that the waiters' places are prolonged ` +
    `every ${(TICK_MS / 1_000).toFixed(1)} s; watched for ${WINDOWS} times ${(SHORT_MS / 1_000).toFixed(1)} s, all at the same time, each with a ` +
    "Redis of its own.",
  async run() {
    const names = [...WAITERS.map(() => OURS), ...Object.keys(REDIS_RIVALS)];
    const keys = new Map<Keeper, string>();
    const costs = new Map<string, Cost | Error>();
    const found = await watchedEach(names, SHORT_MS, async (keeper, at) => {
      const holder = new Child(clientProgram, [keeper.name, keeper.server.address]);
      await holder.call("take", KEY);
      keys.set(keeper, titleOf(keeper.name, at));
      await keeper.client.call("queue", { count: WAITERS[at] ?? FEW, key: KEY, ttl: TTL });
      return () => holder.end();
    });
    for (const [keeper, cost] of found) costs.set(keys.get(keeper) as string, cost);
    const per = (at: number): Spread => oursOf(costs.get(titleOf(OURS, at))).commands;
    const ticks = SHORT_MS / TICK_MS;
    const checks: Check[] = WAITERS.map((count, at) => {
      const perTick = spreadOf([per(at).median / ticks]);
      return check("gate", `${count} of ours: commands a tick`, perTick, "at most", Math.ceil(count / 500) + 1);
    });
    checks.push(check("gate", `${WAITERS[0]} of ours: commands`, spreadOf([per(0).median]), "at least", 1));
    return { rows: rowsOf(costs, SHORT_MS), checks };
  },
};

function titleOf(name: string, at: number): string {
  return `${name}, ${(WAITERS[at] ?? FEW).toLocaleString("en-US")} waiting`;
}

async function watched(
  names: readonly string[],
  windowMs: number,
  prepare: (keeper: Keeper) => Promise<unknown>,
): Promise<ReadonlyMap<string, Cost | Error>> {
  const found = await watchedEach(names, windowMs, async (keeper) => {
    await prepare(keeper);
    return async () => undefined;
  });
  return new Map([...found].map(([{ name }, cost]) => [name, cost]));
}

/** @param prepare gives what ends whatever it began */
async function watchedEach(
  names: readonly string[],
  windowMs: number,
  prepare: (keeper: Keeper, at: number) => Promise<() => Promise<void>>,
): Promise<ReadonlyMap<Keeper, Cost | Error>> {
  return withRedises(names.length, async (servers) => {
    const keepers = names.map((name, at) => {
      const server = servers[at] as BenchRedis;
      return { name, server, client: new Child(clientProgram, [name, server.address]) };
    });
    const ends: (() => Promise<void>)[] = [];
    const failures = new Map<Keeper, Error>();
    try {
      // one after another: each takes a while of both cores
      for (const [at, keeper] of keepers.entries()) {
        try {
          ends.push(await within(PATIENCE_MS, prepare(keeper, at)));
        } catch (error) {
          failures.set(keeper, error as Error);
        }
      }
      await delay(QUICK ? 0 : TTL);
      const costs = await costsOf(
        keepers.filter((keeper) => !failures.has(keeper)),
        windowMs,
      );
      return new Map(keepers.map((keeper) => [keeper, failures.get(keeper) ?? (costs.get(keeper) as Cost | Error)]));
    } finally {
      await Promise.all([...keepers.map(({ client }) => client.end()), ...ends.map((end) => end())]);
    }
  });
}

async function within<T>(ms: number, work: Promise<T>): Promise<T> {
  const late = delay(ms, undefined, { ref: false }).then(() => {
    throw new Error(`not ready within ${ms / 1_000} s`);
  });
  return Promise.race([work, late]);
}

/** The error of whoever ended meanwhile. */
async function costsOf(keepers: readonly Keeper[], windowMs: number): Promise<ReadonlyMap<Keeper, Cost | Error>> {
  const looks: Map<Keeper, Look | Error>[] = [];
  for (let window = 0; window <= WINDOWS; window++) {
    if (window > 0) await delay(windowMs);
    const now = keepers.map(async (keeper) => [keeper, await look(keeper).catch((error: Error) => error)] as const);
    looks.push(new Map(await Promise.all(now)));
  }
  return new Map(
    keepers.map((keeper) => {
      const all = looks.map((look) => look.get(keeper) as Look | Error);
      const failure = all.find((one): one is Error => one instanceof Error);
      return [keeper, failure ?? costOf(keeper, all as Look[])];
    }),
  );
}

function costOf({ name }: Keeper, looks: readonly Look[]): Cost {
  const sends = REDIS_ENTRANTS[name]?.sends ?? [];
  const between = (figure: (before: Look, after: Look) => number): Spread =>
    spreadOf(looks.slice(1).map((after, at) => figure(looks[at] as Look, after)));
  return {
    commands: between((before, after) => callsBetween(before.work, after.work, sends)),
    clientCpu: between((before, after) => after.cpu - before.cpu),
    serverCpu: between((before, after) => after.work.cpu - before.work.cpu),
  };
}

interface Look {
  readonly cpu: number;
  readonly work: RedisWork;
}

async function look({ client, server }: Keeper): Promise<Look> {
  const [cpu, work] = await Promise.all([client.cpu(), server.work()]);
  return { cpu, work };
}

/** @throws if it is ours that failed */
function oursOf(cost: Cost | Error | undefined): Cost {
  if (cost === undefined || cost instanceof Error) throw cost ?? new Error("was not measured");
  return cost;
}

function rowsOf(all: ReadonlyMap<string, Cost | Error>, windowMs: number): Row[] {
  const per = (spread: Spread, by: number): Spread => spreadOf(spread.rounds.map((figure) => figure / by));
  return [...all].map(([name, cost]) => {
    if (cost instanceof Error) return { contestant: `${name} (failed: ${cost.message})`, figures: {} };
    const { commands, clientCpu, serverCpu } = cost;
    return {
      contestant: name,
      figures: {
        "commands/s": per(commands, windowMs / 1_000),
        // microseconds in a hundredth of the window's
        "client CPU %": per(clientCpu, windowMs * 10),
        "server CPU %": per(serverCpu, windowMs * 10),
      },
    };
  });
}
