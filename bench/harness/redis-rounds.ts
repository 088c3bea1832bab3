/** Rounds on one Redis: every contestant once in each, with as many processes as wanted, one contestant at a time. */

import { setTimeout as delay } from "node:timers/promises";
import { contestants } from "../contestants/contestants.ts";
import { REDIS_ENTRANTS, REDIS_RIVALS } from "../contestants/redis.ts";
import { Child } from "./calls.ts";
import type { Row } from "./case.ts";
import { quiet } from "./machine.ts";
import type { BenchRedis, RedisWork } from "./redis.ts";
import { callsBetween, withRedis } from "./redis.ts";
import { clientProgram } from "./rounds.ts";
import type { Spread } from "./stats.ts";
import { spreadOf, variation } from "./stats.ts";
import type { Finish, Load, Look } from "./window.ts";

/** To see that all runs, in little time: nothing of it is a measurement, and no table is written. */
export const QUICK: boolean = process.env.HOLDFAST_BENCH_QUICK === "1";
/** Not counted: code is compiled, heaps grow. */
const WARM_UP = 1;
const ROUNDS = QUICK ? 2 : 5;
/** Every process has begun, and whoever came first has no lead. */
const AHEAD_MS = 40;
/** For callers that still wait when a round is over; then their processes are replaced. */
const PATIENCE_MS = 500;
/** A new process compiles its code before it is measured again. */
const WARM_MS = 150;
/** Ours are watched until every caller can have had so many grants: with fewer, one more or less would look unfair. */
const LEAST_GRANTS = 50;
const MOST_WINDOWS = 8;

export interface RedisRound {
  readonly grants: number;
  readonly ms: number;
  /** Of its processes together, and of Redis or its broker, microseconds. */
  readonly cpu: number;
  readonly serverCpu: number;
  readonly grantsPerCaller: readonly number[];
  /** Microseconds: medians and p99 over the processes' own, and the longest. */
  readonly p50: number;
  readonly p99: number;
  readonly most: number;
  /** Commands it sent per grant in the window; NaN if it does not use Redis. */
  readonly commands: number;
  /** The same per pair, from the first command to the last. */
  readonly sent: number;
  /** Callers that still waited half a second after the last had asked. */
  readonly stuck: number;
}

export interface RedisRounds {
  (name: string): readonly RedisRound[];
  /** Why a contestant could not go on; null if it could. */
  failure(name: string): string | null;
}

export interface RedisTeam {
  readonly name: string;
  clients: readonly Child[];
  /** How often its processes were replaced. */
  lives: number;
  start(): Child[];
  /** Its own broker, where it does not use Redis. */
  readonly broker: Child | null;
}

export interface RedisOptions {
  readonly processes: number | ((name: string) => number);
  readonly load: Load | ((name: string) => Load);
  readonly ms: number;
  /** Watch ours for longer on a slow machine. Default false. */
  readonly fair?: boolean;
}

export async function onRedis(names: readonly string[], options: RedisOptions): Promise<RedisRounds> {
  const rounds = new Map<string, RedisRound[]>(names.map((name) => [name, []]));
  const failures = new Map<string, string>();
  await withRedis((server) =>
    withTeams(names, options.processes, server, (teams) =>
      eachRound(teams, async (team, isCounted) => {
        if (failures.has(team.name)) return;
        try {
          const found = await once(team, server, options);
          if (isCounted) rounds.get(team.name)?.push(found);
        } catch (error) {
          failures.set(team.name, error instanceof Error ? (error.message.split("\n")[0] ?? "") : String(error));
        }
      }),
    ),
  );
  const [ours] = [...failures].filter(([name]) => REDIS_RIVALS[name] === undefined);
  if (ours !== undefined) throw new Error(ours.join(": "));
  const of = (name: string): readonly RedisRound[] => rounds.get(name) ?? [];
  return Object.assign(of, { failure: (name: string) => failures.get(name) ?? null });
}

/** Warm-up and counted rounds; the first place goes round. */
export async function eachRound<Team>(
  teams: readonly Team[],
  measure: (team: Team, isCounted: boolean) => Promise<void>,
): Promise<void> {
  for (let round = -WARM_UP; round < ROUNDS; round++) {
    for (let turn = 0; turn < teams.length; turn++) {
      if (!QUICK) await quiet();
      await measure(teams[(turn + round + WARM_UP) % teams.length] as Team, round >= 0);
    }
  }
}

/** Starts everybody's processes, gives them to `use`, and ends them. */
export async function withTeams<T>(
  names: readonly string[],
  processes: number | ((name: string) => number),
  server: BenchRedis,
  use: (teams: readonly RedisTeam[]) => Promise<T>,
): Promise<T> {
  const teams: RedisTeam[] = [];
  try {
    for (const name of names)
      teams.push(await team(name, typeof processes === "number" ? processes : processes(name), server));
    return await use(teams);
  } finally {
    const all = teams.flatMap(({ clients, broker }) => [...clients, ...(broker === null ? [] : [broker])]);
    await Promise.all(all.map((child) => child.end()));
  }
}

async function team(name: string, processes: number, server: BenchRedis): Promise<RedisTeam> {
  const program = contestants(name).server;
  const broker =
    program === undefined ? null : new Child(new URL(`../servers/${program}.child.js`, import.meta.url), []);
  const address = (await broker?.call<string>("listen", { path: "", tcp: true })) ?? server.address;
  const start = (): Child[] => Array.from({ length: processes }, () => new Child(clientProgram, [name, address]));
  return { name, start, clients: start(), broker, lives: 0 };
}

function all<T>({ clients }: RedisTeam, call: string, argument?: unknown): Promise<T[]> {
  return Promise.all(clients.map((client) => client.call<T>(call, argument)));
}

async function once(team: RedisTeam, server: BenchRedis, options: RedisOptions): Promise<RedisRound> {
  const { name, broker } = team;
  const load = typeof options.load === "function" ? options.load(name) : options.load;
  const sends = REDIS_ENTRANTS[name]?.sends;
  const count = (before: RedisWork, after: RedisWork): number =>
    sends === undefined ? Number.NaN : callsBetween(before, after, sends);
  await all(team, "ready");
  const first = await server.work();
  await all(team, "begin", { ...load, prefix: `${name}:${team.lives}:` } satisfies Load);
  await delay(AHEAD_MS);
  await all(team, "mark");
  const [before, brokerBefore] = [await server.work(), (await broker?.cpu()) ?? 0];
  const looks = await watched(team, load, options);
  const [after, brokerAfter] = [await server.work(), (await broker?.cpu()) ?? 0];
  const ends = await all<Finish>(team, "finish", PATIENCE_MS);
  const sent = count(first, await server.work()) / sum(ends.map(({ pairs }) => pairs));
  const stuck = sum(ends.map((end) => end.stuck));
  if (stuck > 0) await replace(team);
  const grants = sum(looks.flatMap(({ grantsPerCaller }) => grantsPerCaller));
  return {
    grants,
    // so that grants / ms is the sum of the clients' rates, whose times differ a little
    ms: grants / sum(looks.map((one) => sum(one.grantsPerCaller) / one.ms)),
    cpu: sum(looks.map(({ cpu }) => cpu)),
    serverCpu: broker === null ? after.cpu - before.cpu : brokerAfter - brokerBefore,
    grantsPerCaller: looks.flatMap(({ grantsPerCaller }) => grantsPerCaller),
    p50: mean(looks.map(({ p50 }) => p50)),
    p99: mean(looks.map(({ p99 }) => p99)),
    most: Math.max(...looks.map(({ most }) => most)),
    commands: count(before, after) / grants,
    sent,
    stuck,
  };
}

async function watched(team: RedisTeam, { callers }: Load, { ms, fair = false }: RedisOptions): Promise<Look[]> {
  const isPatient = fair && !QUICK && REDIS_RIVALS[team.name] === undefined;
  for (let windows = 1; ; windows++) {
    await delay(QUICK ? ms / 4 : ms);
    const looks = await all<Look>(team, "look");
    const grants = sum(looks.flatMap(({ grantsPerCaller }) => grantsPerCaller));
    const wanted = isPatient ? LEAST_GRANTS * callers * looks.length : 1;
    if (grants >= wanted || windows === MOST_WINDOWS) return looks;
  }
}

/** With keys of their own: whoever was ended may have held the last ones. */
async function replace(team: RedisTeam): Promise<void> {
  await Promise.all(team.clients.map((client) => client.end()));
  team.clients = team.start();
  team.lives++;
  await all(team, "begin", { callers: 1, keys: 1, timed: "nothing", prefix: `${team.lives}:warm:` } satisfies Load);
  await delay(WARM_MS);
  await all(team, "finish", PATIENCE_MS);
}

/** Grants a second, round by round. */
export function ratesOf(rounds: readonly RedisRound[]): readonly number[] {
  return rounds.map(({ grants, ms }) => (grants / ms) * 1_000);
}

export function of(
  rounds: readonly RedisRound[],
  figure: keyof Omit<RedisRound, "grantsPerCaller">,
): readonly number[] {
  return rounds.map((round) => round[figure]);
}

/** How unevenly the callers were served, round by round. */
export function spreadOfGrants(rounds: readonly RedisRound[]): readonly number[] {
  return rounds.map(({ grantsPerCaller }) => variation(grantsPerCaller));
}

/** Callers that got nothing, round by round. */
export function starvedOf(rounds: readonly RedisRound[]): readonly number[] {
  return rounds.map(({ grantsPerCaller }) => grantsPerCaller.filter((grants) => grants === 0).length);
}

/** Microseconds of the clients' CPU per grant, round by round. */
export function clientCpuOf(rounds: readonly RedisRound[]): readonly number[] {
  return rounds.map(({ cpu, grants }) => cpu / grants);
}

/** In each round the best of those who ended it. */
export function bestOf(rounds: RedisRounds, names: readonly string[]): readonly number[] {
  const all = names.filter((name) => rounds.failure(name) === null).map((name) => ratesOf(rounds(name)));
  return Array.from({ length: ROUNDS }, (_, round) => Math.max(...all.map((rates) => rates[round] ?? 0)));
}

/** The columns of a table for one that may have failed. */
export function redisRow(name: string, rounds: RedisRounds, columns: readonly Column[]): Row {
  const failure = rounds.failure(name);
  if (failure !== null) return { contestant: `${name} (failed: ${failure})`, figures: {} };
  const found = rounds(name);
  const figures: Record<string, Spread> = {};
  for (const column of columns) {
    const [title, figure] = COLUMNS[column];
    const all = figure(found);
    if (all.every((one) => Number.isFinite(one))) figures[title] = spreadOf(all);
  }
  return { contestant: name, figures };
}

export type Column = keyof typeof COLUMNS;

const COLUMNS = {
  rate: ["grants/s", ratesOf],
  p50: ["p50 us", (rounds) => of(rounds, "p50")],
  p99: ["p99 us", (rounds) => of(rounds, "p99")],
  longest: ["longest ms", (rounds) => of(rounds, "most").map((micros) => micros / 1_000)],
  commands: ["commands/grant", (rounds) => of(rounds, "commands")],
  spread: ["spread of grants", spreadOfGrants],
  starved: ["callers with none", starvedOf],
  stuck: ["still waiting 0.5 s later", (rounds) => of(rounds, "stuck")],
  clientCpu: ["client CPU us", clientCpuOf],
  serverCpu: ["server CPU us", (rounds) => rounds.map(({ serverCpu, grants }) => serverCpu / grants)],
} as const satisfies Record<string, readonly [string, (rounds: readonly RedisRound[]) => readonly number[]]>;

function sum(figures: readonly number[]): number {
  return figures.reduce((total, one) => total + one, 0);
}

/** Of those there are: a process that got nothing, or timed nothing, has none (NaN, which is null behind the channel). */
function mean(figures: readonly number[]): number {
  const found = figures.filter((figure) => Number.isFinite(figure));
  return sum(found) / found.length;
}
