/** Rounds in which every contestant is measured once, each in processes of its own, one at a time. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { contestants } from "../contestants/contestants.ts";
import { Child } from "./calls.ts";
import type { Row } from "./case.ts";
import type { Measured } from "./client.child.ts";
import { quiet } from "./machine.ts";
import type { Spread } from "./stats.ts";
import { spreadOf, variation } from "./stats.ts";
import type { Workload } from "./workload.ts";

/** Not counted: code is compiled, heaps grow. */
export const WARM_UP: number = 2;
/** Counted. At least five. */
export const ROUNDS: number = 7;

/** What one contestant did in one round. */
export interface Round extends Measured {
  /** Of its server, microseconds; 0 if it has none. */
  readonly serverCpu: number;
}

/** The rounds of a contestant by its name. @throws if it did not take part */
export type Rounds = (name: string) => readonly Round[];

/** A contestant's processes. */
export interface Runner {
  readonly name: string;
  readonly client: Child;
  readonly server: Child | null;
  /** Its server's socket. */
  readonly socket: string;
}

/** Starts the processes of a contestant, gives them to `use`, and ends them. */
export async function withRunner<T>(
  name: string,
  use: (runner: Runner) => Promise<T>,
  nodeOptions: readonly string[] = [],
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-bench-"));
  const socket = join(folder, "s");
  const program = contestants(name).server;
  const server =
    program === undefined ? null : new Child(new URL(`../servers/${program}.child.js`, import.meta.url), []);
  const client = new Child(clientProgram, [name, socket], nodeOptions);
  try {
    await server?.call("listen", { path: socket, tcp: false });
    return await use({ name, client, server, socket });
  } finally {
    await client.end();
    await server?.end();
    rmSync(folder, { recursive: true, force: true });
  }
}

export const clientProgram: URL = new URL("./client.child.js", import.meta.url);

/** All of them measured round by round, in the order given; the first place goes round too. */
export async function interleave(names: readonly string[], workloadOf: (name: string) => Workload): Promise<Rounds> {
  const rounds = new Map<string, Round[]>(names.map((name) => [name, []]));
  const measure = async (runners: readonly Runner[]): Promise<void> => {
    for (let round = -WARM_UP; round < ROUNDS; round++) {
      for (let turn = 0; turn < runners.length; turn++) {
        const runner = runners[(turn + round + WARM_UP) % runners.length] as Runner;
        const measured = await once(runner, workloadOf(runner.name));
        if (round >= 0) rounds.get(runner.name)?.push(measured);
      }
    }
  };
  await withRunners(names, measure);
  return (name) => {
    const found = rounds.get(name);
    if (found === undefined) throw new Error(`"${name}" was not measured`);
    return found;
  };
}

async function withRunners(
  names: readonly string[],
  use: (runners: readonly Runner[]) => Promise<void>,
): Promise<void> {
  const [name, ...rest] = names;
  if (name === undefined) return use([]);
  await withRunner(name, (runner) => withRunners(rest, (others) => use([runner, ...others])));
}

async function once({ client, server }: Runner, workload: Workload): Promise<Round> {
  await quiet();
  const before = (await server?.cpu()) ?? 0;
  const measured = await client.call<Measured>("perform", workload);
  const after = (await server?.cpu()) ?? 0;
  return { ...measured, serverCpu: after - before };
}

/** Pairs of acquire and release per second, round by round. */
export function rates(rounds: readonly Round[]): readonly number[] {
  return rounds.map(({ pairs, ms }) => (pairs / ms) * 1_000);
}

/** Microseconds that half of the pairs took at most, round by round. */
export function halfTook(rounds: readonly Round[]): readonly number[] {
  return rounds.map(({ p50 }) => p50);
}

/** Microseconds of CPU a pair, client and server together, round by round. */
export function cpus(rounds: readonly Round[]): readonly number[] {
  return rounds.map(({ pairs, cpu, serverCpu }) => (cpu + serverCpu) / pairs);
}

/** How unevenly the callers were served, round by round. */
export function unevenness(rounds: readonly Round[]): readonly number[] {
  return rounds.map(({ grantsPerCaller }) => variation(grantsPerCaller));
}

/** Callers that got nothing, round by round. */
export function starved(rounds: readonly Round[]): readonly number[] {
  return rounds.map(({ grantsPerCaller }) => grantsPerCaller.filter((grants) => grants === 0).length);
}

/** The usual columns, and more. */
export function rowOf(contestant: string, rounds: readonly Round[], more: Row["figures"] = {}): Row {
  const figures: Record<string, Spread> = { "pairs/s": spreadOf(rates(rounds)) };
  if (rounds.every(({ p50 }) => Number.isFinite(p50))) {
    figures["p50 us"] = spreadOf(halfTook(rounds));
    figures["p99 us"] = spreadOf(rounds.map(({ p99 }) => p99));
  }
  figures["client CPU us/pair"] = spreadOf(rounds.map(({ cpu, pairs }) => cpu / pairs));
  if (rounds.some(({ serverCpu }) => serverCpu > 0)) {
    figures["server CPU us/pair"] = spreadOf(rounds.map(({ serverCpu, pairs }) => serverCpu / pairs));
  }
  return { contestant, figures: { ...figures, ...more } };
}
