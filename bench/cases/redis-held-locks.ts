/** What it costs in Redis to hold many locks, and to wait for one. */

import { setTimeout as delay } from "node:timers/promises";
import type { BenchCase, Check, Row } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import type { BenchStore, StoreWork } from "../harness/bench-store.ts";
import { callsBetween } from "../harness/bench-store.ts";
import { ChildProcessRpc } from "../harness/child-rpc.ts";
import { IS_QUICK_RUN } from "../harness/quick-run.ts";
import { withBenchRedises } from "../harness/redis.ts";
import { CLIENT_PROGRAM } from "../harness/rounds.ts";
import type { Spread } from "../harness/stats.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";
import { HOLDFAST, REDIS_IMPLEMENTATIONS, REDIS_THIRD_PARTIES } from "../implementations/redis.ts";

const LOCK_COUNT = IS_QUICK_RUN ? 2_000 : 10_000;
const TTL = 5_000;
/** We prolong after a third of the lease, rivals when a tenth to a fifth of it is left. */
const TICK_MS = TTL / 3;
const WINDOWS = IS_QUICK_RUN ? 2 : 7;
const WATCH_MS = 5 * TICK_MS;
const TIMEOUT_MS = 30_000;

/** A process that keeps what it keeps, with a Redis to itself: its cost is measured while others do the same. */
interface HoldingClient {
  readonly name: string;
  readonly client: ChildProcessRpc;
  readonly server: BenchStore;
}

/** Per window of `watchMs`. */
interface HoldingCost {
  readonly commands: Spread;
  readonly clientCpu: Spread;
  readonly serverCpu: Spread;
}

export const redisHeldLocks: BenchCase = {
  name: "redis-held",
  title: `Redis, ${LOCK_COUNT.toLocaleString("en-US")} held locks of one process, prolonged by themselves`,
  about:
    `A lease of ${TTL / 1_000} s for everybody, watched for ${WINDOWS} times ${Math.round(WATCH_MS / 1_000)} s, all at the same ` +
    "time, each with a Redis of its own. We prolong every third of the lease, the rivals every 4 to 4.5 s: within a window they " +
    "do it twice, we five times.",
  headline: ["CPU %"],
  reasons: {
    "*":
      "Holdfast renews after a third of the lease and the rivals when a fifth of it or less is left, so it renews two and a half " +
      "times as often, and survives a pause that they do not.",
  },
  async run() {
    const supportedNames = [HOLDFAST, ...Object.keys(REDIS_THIRD_PARTIES)].filter(
      (name) => REDIS_IMPLEMENTATIONS[name]?.holdLocks !== undefined,
    );
    const costs = await measureWindow(supportedNames, WATCH_MS, ({ client }) =>
      client.call("keep", { count: LOCK_COUNT, ttl: TTL }),
    );
    const holdfast = holdfastCost(costs.get(HOLDFAST));
    const thirdPartyCosts = [...costs].flatMap(([name, cost]) =>
      name === HOLDFAST || cost instanceof Error ? [] : [cost],
    );
    const best = Array.from({ length: WINDOWS }, (_, index) =>
      Math.min(...thirdPartyCosts.map((cost) => sumCpu(cost)[index] as number)),
    );
    const ticks = WATCH_MS / TICK_MS;
    const perTick = computeSpread(holdfast.commands.rounds.map((commands) => commands / ticks));
    const unable = Object.keys(REDIS_THIRD_PARTIES).filter((name) => !supportedNames.includes(name));
    return {
      rows: [
        ...toRows(costs, WATCH_MS),
        ...[...unable, "live-mutex"].map((name) => ({
          name: `${name} (prolongs nothing by itself)`,
          figures: {},
        })),
      ],
      checks: [
        // a round of renewals may fall into the window before or after its own
        check("gate", "commands a tick", computeSpread([perTick.median]), "at most", LOCK_COUNT / 500 + 1),
        check("gate", "commands", holdfast.commands, "at least", 1),
        check("goal", "client and Redis CPU of the best rival", computeRatio(sumCpu(holdfast), best), "at most", 0.8),
      ],
    };
  },
};

const WAITERS = [10, 100, 1_000];
const FEW_WAITERS = 100;
const KEY = "wanted";
const SHORT_MS = 2 * TICK_MS;

export const redisWaiting: BenchCase = {
  name: "redis-waiting",
  title: "Redis, processes that wait for one key",
  about:
    `A second process keeps the key for all the time. Our lease is ${TTL / 1_000} s here, so that the waiters' places are prolonged ` +
    `every ${(TICK_MS / 1_000).toFixed(1)} s; watched for ${WINDOWS} times ${(SHORT_MS / 1_000).toFixed(1)} s, all at the same time, each with a ` +
    "Redis of its own.",
  headline: ["commands/s"],
  reasons: {
    "*":
      "Holdfast renews the place of its waiters and asks again, in case a message was lost; simple-redis-mutex relies on the " +
      "message.",
  },
  async run() {
    const names = [...WAITERS.map(() => HOLDFAST), ...Object.keys(REDIS_THIRD_PARTIES)];
    const keys = new Map<HoldingClient, string>();
    const costs = new Map<string, HoldingCost | Error>();
    const results = await measureEachWindow(names, SHORT_MS, async (client, index) => {
      const holder = new ChildProcessRpc(CLIENT_PROGRAM, [client.name, client.server.address]);
      await holder.call("take", KEY);
      keys.set(client, rowTitle(client.name, index));
      await client.client.call("queue", { count: WAITERS[index] ?? FEW_WAITERS, key: KEY, ttl: TTL });
      return () => holder.end();
    });
    for (const [holder, cost] of results) costs.set(keys.get(holder) as string, cost);
    const per = (index: number): Spread => holdfastCost(costs.get(rowTitle(HOLDFAST, index))).commands;
    const ticks = SHORT_MS / TICK_MS;
    const checks: Check[] = WAITERS.map((count, index) => {
      const perTick = computeSpread([per(index).median / ticks]);
      return check("gate", `${count} clients: commands a tick`, perTick, "at most", Math.ceil(count / 500) + 1);
    });
    checks.push(check("gate", `${WAITERS[0]} clients: commands`, computeSpread([per(0).median]), "at least", 1));
    return { rows: toRows(costs, SHORT_MS), checks };
  },
};

function rowTitle(name: string, at: number): string {
  return `${name}, ${(WAITERS[at] ?? FEW_WAITERS).toLocaleString("en-US")} waiting`;
}

async function measureWindow(
  names: readonly string[],
  windowMs: number,
  prepare: (client: HoldingClient) => Promise<unknown>,
): Promise<ReadonlyMap<string, HoldingCost | Error>> {
  const results = await measureEachWindow(names, windowMs, async (client) => {
    await prepare(client);
    return async () => undefined;
  });
  return new Map([...results].map(([{ name }, cost]) => [name, cost]));
}

/** @param prepare gives what ends whatever it began */
async function measureEachWindow(
  names: readonly string[],
  windowMs: number,
  prepare: (client: HoldingClient, at: number) => Promise<() => Promise<void>>,
): Promise<ReadonlyMap<HoldingClient, HoldingCost | Error>> {
  return withBenchRedises(names.length, async (servers) => {
    const holders = names.map((name, index) => {
      const server = servers[index] as BenchStore;
      return { name, server, client: new ChildProcessRpc(CLIENT_PROGRAM, [name, server.address]) };
    });
    const cleanups: (() => Promise<void>)[] = [];
    const failures = new Map<HoldingClient, Error>();
    try {
      // one after another: each takes a while of both cores
      for (const [index, holder] of holders.entries()) {
        try {
          cleanups.push(await withinTime(TIMEOUT_MS, prepare(holder, index)));
        } catch (error) {
          failures.set(holder, error as Error);
        }
      }
      await delay(IS_QUICK_RUN ? 0 : TTL);
      const costs = await toCosts(
        holders.filter((holder) => !failures.has(holder)),
        windowMs,
      );
      return new Map(
        holders.map((holder) => [holder, failures.get(holder) ?? (costs.get(holder) as HoldingCost | Error)]),
      );
    } finally {
      await Promise.all([...holders.map(({ client }) => client.end()), ...cleanups.map((end) => end())]);
    }
  });
}

async function withinTime<T>(ms: number, operation: Promise<T>): Promise<T> {
  const timeout = delay(ms, undefined, { ref: false }).then(() => {
    throw new Error(`not ready within ${ms / 1_000} s`);
  });
  return Promise.race([operation, timeout]);
}

/** The error of a process that ended meanwhile. */
async function toCosts(
  clients: readonly HoldingClient[],
  windowMs: number,
): Promise<ReadonlyMap<HoldingClient, HoldingCost | Error>> {
  const looks: Map<HoldingClient, UsageSample | Error>[] = [];
  for (let window = 0; window <= WINDOWS; window++) {
    if (window > 0) await delay(windowMs);
    const now = clients.map(
      async (client) => [client, await sampleUsage(client).catch((error: Error) => error)] as const,
    );
    looks.push(new Map(await Promise.all(now)));
  }
  return new Map(
    clients.map((client) => {
      const all = looks.map((look) => look.get(client) as UsageSample | Error);
      const failure = all.find((sample): sample is Error => sample instanceof Error);
      return [client, failure ?? toCost(client, all as UsageSample[])];
    }),
  );
}

function toCost({ name }: HoldingClient, usageSamples: readonly UsageSample[]): HoldingCost {
  const sends = REDIS_IMPLEMENTATIONS[name]?.countedCommands ?? [];
  const computeWindowSpread = (figure: (before: UsageSample, after: UsageSample) => number): Spread =>
    computeSpread(usageSamples.slice(1).map((after, index) => figure(usageSamples[index] as UsageSample, after)));
  return {
    commands: computeWindowSpread((before, after) => callsBetween(before.work, after.work, sends)),
    clientCpu: computeWindowSpread((before, after) => after.cpu - before.cpu),
    serverCpu: computeWindowSpread((before, after) => after.work.cpu - before.work.cpu),
  };
}

interface UsageSample {
  readonly cpu: number;
  readonly work: StoreWork;
}

async function sampleUsage({ client, server }: HoldingClient): Promise<UsageSample> {
  const [cpu, work] = await Promise.all([client.cpuMicros(), server.work()]);
  return { cpu, work };
}

/** Of the client and of Redis, window by window. */
function sumCpu({ clientCpu, serverCpu }: HoldingCost): readonly number[] {
  return clientCpu.rounds.map((micros, window) => micros + (serverCpu.rounds[window] as number));
}

/** @throws if Holdfast failed */
function holdfastCost(cost: HoldingCost | Error | undefined): HoldingCost {
  if (cost === undefined || cost instanceof Error) throw cost ?? new Error("was not measured");
  return cost;
}

function toRows(costs: ReadonlyMap<string, HoldingCost | Error>, windowMs: number): Row[] {
  const per = (spread: Spread, divisor: number): Spread =>
    computeSpread(spread.rounds.map((figure) => figure / divisor));
  return [...costs].map(([name, cost]) => {
    if (cost instanceof Error) return { name: `${name} (failed: ${cost.message})`, figures: {} };
    const { commands, clientCpu, serverCpu } = cost;
    return {
      name,
      figures: {
        "commands/s": per(commands, windowMs / 1_000),
        // microseconds in a hundredth of the window's
        "client CPU %": per(clientCpu, windowMs * 10),
        "server CPU %": per(serverCpu, windowMs * 10),
        "CPU %": per(computeSpread(sumCpu(cost)), windowMs * 10),
      },
    };
  });
}
