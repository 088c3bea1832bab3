/** Rounds on one ZooKeeper, as it comes (every write is synced to the disk): ours in Node, Curator in JVMs, taking turns. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { startZooKeeper } from "../../test/support/services/zookeeper.ts";
import { Child } from "./calls.ts";
import type { Row } from "./case.ts";
import { CuratorClient, compileCurator, cpuOf } from "./curator.ts";
import { quiet } from "./machine.ts";
import { clientProgram } from "./rounds.ts";
import type { Spread } from "./stats.ts";
import { quantile, spreadOf, variation } from "./stats.ts";
import type { Load, Look } from "./window.ts";

export const CURATOR = "Curator";

const QUICK = process.env.HOLDFAST_BENCH_QUICK === "1";
/** Not counted: code is compiled, heaps grow; a JVM takes its time for that. */
const WARM_UP = QUICK ? 1 : 3;
const ROUNDS = QUICK ? 2 : 5;
/** Every process has begun, and whoever came first has no lead. */
const AHEAD_MS = 60;
const PATIENCE_MS = 10_000;
/** With fewer for each caller a grant more or less would look like unfairness. */
const LEAST_TURNS = 4;

export interface ZooKeeperRound extends Look {
  readonly grants: number;
  /** Of ZooKeeper, microseconds. */
  readonly serverCpu: number;
}

export type ZooKeeperRounds = (name: string) => readonly ZooKeeperRound[];

/** One process of a contestant. */
interface Player {
  begin(load: Load): Promise<unknown>;
  mark(): Promise<unknown>;
  look(): Promise<Look>;
  finish(): Promise<unknown>;
  end(): Promise<unknown>;
}

interface Team {
  readonly name: string;
  readonly players: readonly Player[];
}

export interface ZooKeeperOptions {
  readonly processes: number;
  readonly load: Load;
  readonly ms: number;
}

/** Starts a ZooKeeper, gives its address (host:port) and process id to `use`, and ends it. */
export async function withZooKeeper<T>(use: (address: string, pid: number) => Promise<T>): Promise<T> {
  await using server = await startZooKeeper({ synced: true });
  return await use(`${server.address.host}:${server.address.port}`, server.pid);
}

export function onZooKeeper(names: readonly string[], options: ZooKeeperOptions): Promise<ZooKeeperRounds> {
  const rounds = new Map<string, ZooKeeperRound[]>(names.map((name) => [name, []]));
  return withZooKeeper(async (address, pid) => {
    const teams: Team[] = [];
    const classes = mkdtempSync(join(tmpdir(), "holdfast-curator-"));
    compileCurator(classes);
    try {
      for (const name of names) teams.push(await teamOf(name, options.processes, address, classes));
      await inTurns(teams, async (team, isCounted) => {
        const round = await once(team, options, pid);
        if (isCounted) rounds.get(team.name)?.push(round);
      });
    } finally {
      await Promise.all(teams.flatMap(({ players }) => players.map((player) => player.end())));
      rmSync(classes, { recursive: true });
    }
    return (name) => rounds.get(name) ?? [];
  });
}

/** Warm-up and counted rounds; the first place goes round. */
export async function inTurns<T>(
  teams: readonly T[],
  measure: (team: T, isCounted: boolean) => Promise<void>,
): Promise<void> {
  for (let round = -WARM_UP; round < ROUNDS; round++) {
    for (let turn = 0; turn < teams.length; turn++) {
      if (!QUICK) await quiet();
      await measure(teams[(turn + round + WARM_UP) % teams.length] as T, round >= 0);
    }
  }
}

async function teamOf(name: string, processes: number, address: string, classes: string): Promise<Team> {
  const start = (): Promise<Player> =>
    name === CURATOR ? CuratorClient.start(classes, address) : nodePlayer(name, address);
  return { name, players: await Promise.all(Array.from({ length: processes }, start)) };
}

async function nodePlayer(name: string, address: string): Promise<Player> {
  const child = new Child(clientProgram, [name, address]);
  await child.call("ready");
  return {
    begin: (load) => child.call("begin", load),
    mark: () => child.call("mark"),
    look: () => child.call<Look>("look"),
    finish: () => child.call("finish", PATIENCE_MS),
    end: () => child.end(),
  };
}

async function once({ name, players }: Team, { load, ms }: ZooKeeperOptions, pid: number): Promise<ZooKeeperRound> {
  const all = <T>(step: (player: Player) => Promise<T>): Promise<T[]> => Promise.all(players.map(step));
  await all((player) => player.begin({ ...load, prefix: name === CURATOR ? "key-" : `${name}-` }));
  await delay(AHEAD_MS);
  await all((player) => player.mark());
  const before = cpuOf(pid);
  const looks = await watched(all, load.callers * players.length, QUICK ? ms / 2 : ms);
  const serverCpu = cpuOf(pid) - before;
  await all((player) => player.finish());
  const grantsPerCaller = looks.flatMap((look) => look.grantsPerCaller);
  const grants = sum(grantsPerCaller);
  return {
    grants,
    // so that grants / ms is the sum of the processes' rates, whose times differ a little
    ms: grants / sum(looks.map((look) => sum(look.grantsPerCaller) / look.ms)),
    cpu: sum(looks.map(({ cpu }) => cpu)),
    serverCpu,
    grantsPerCaller,
    p50: quantile(
      looks.map(({ p50 }) => p50),
      0.5,
    ),
    p99: quantile(
      looks.map(({ p99 }) => p99),
      0.5,
    ),
    most: Math.max(...looks.map(({ most }) => most)),
  };
}

/** After a while; and after everybody can have had a turn, however slow the machine is. */
async function watched(
  all: (step: (player: Player) => Promise<Look>) => Promise<Look[]>,
  callers: number,
  ms: number,
): Promise<Look[]> {
  const until = performance.now() + PATIENCE_MS;
  for (;;) {
    await delay(ms);
    const looks = await all((player) => player.look());
    const grants = sum(looks.flatMap(({ grantsPerCaller }) => grantsPerCaller));
    if (grants >= callers * LEAST_TURNS || performance.now() > until) return looks;
  }
}

/** Grants a second, round by round. */
export function ratesOf(rounds: readonly ZooKeeperRound[]): readonly number[] {
  return rounds.map(({ grants, ms }) => (grants / ms) * 1_000);
}

/** Callers that got nothing, round by round. */
export function starvedIn(rounds: readonly ZooKeeperRound[]): readonly number[] {
  return rounds.map(({ grantsPerCaller }) => grantsPerCaller.filter((grants) => grants === 0).length);
}

export function zooKeeperRow(name: string, rounds: readonly ZooKeeperRound[]): Row {
  const figures: Record<string, Spread> = { "grants/s": spreadOf(ratesOf(rounds)) };
  const times = { "p50 ms": "p50", "p99 ms": "p99", "longest ms": "most" } as const;
  for (const [column, field] of Object.entries(times)) {
    const found = rounds.map((round) => round[field] / 1_000);
    // nothing was timed: no figure survives the way between the processes
    if (found.every((time) => Number.isFinite(time) && time > 0)) figures[column] = spreadOf(found);
  }
  if ((rounds[0]?.grantsPerCaller.length ?? 0) > 1) {
    figures["spread of grants"] = spreadOf(rounds.map(({ grantsPerCaller }) => variation(grantsPerCaller)));
    figures["got nothing"] = spreadOf(starvedIn(rounds));
  }
  figures["client CPU us/grant"] = spreadOf(rounds.map(({ cpu, grants }) => cpu / grants));
  figures["ZooKeeper CPU us/grant"] = spreadOf(rounds.map(({ serverCpu, grants }) => serverCpu / grants));
  return { contestant: name, figures };
}

function sum(figures: readonly number[]): number {
  return figures.reduce((total, one) => total + one, 0);
}
