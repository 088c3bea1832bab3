/** Rounds in which every implementation is measured once, each in processes of its own, one at a time. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findImplementation } from "../implementations/implementations.ts";
import type { Row } from "./bench-case.ts";
import { ChildProcessRpc } from "./child-rpc.ts";
import type { Measured } from "./client.child.ts";
import type { Workload } from "./closed-loop.ts";
import { runRounds } from "./run-rounds.ts";
import type { Spread } from "./stats.ts";
import { computeSpread, variation } from "./stats.ts";

/** Rounds in which processes that have a core each are compiled. */
export const WARM_UP: number = 2;

/** What one implementation did in one round. */
export interface Round extends Measured {
  /** Of its server, microseconds; 0 if it has none. */
  readonly serverCpu: number;
}

/** The rounds of an implementation by its name. @throws if it was not measured */
export type Rounds = (name: string) => readonly Round[];

/** An implementation's processes. */
export interface RunningImplementation {
  readonly name: string;
  readonly client: ChildProcessRpc;
  readonly server: ChildProcessRpc | null;
  /** Its server's socket. */
  readonly socket: string;
}

/** Starts the processes of an implementation, gives them to `use`, and ends them. */
export async function withImplementation<T>(
  name: string,
  use: (implementation: RunningImplementation) => Promise<T>,
  nodeOptions: readonly string[] = [],
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-bench-"));
  const socket = join(folder, "s");
  const program = findImplementation(name).server;
  const server =
    program === undefined ? null : new ChildProcessRpc(new URL(`../servers/${program}.child.js`, import.meta.url), []);
  const client = new ChildProcessRpc(CLIENT_PROGRAM, [name, socket], nodeOptions);
  try {
    await server?.call("listen", { path: socket, tcp: false });
    return await use({ name, client, server, socket });
  } finally {
    await client.end();
    await server?.end();
    rmSync(folder, { recursive: true, force: true });
  }
}

export const CLIENT_PROGRAM: URL = new URL("./client.child.js", import.meta.url);

/** All of them measured round by round, in the order given; the first place goes round too. */
export async function interleave(names: readonly string[], workloadOf: (name: string) => Workload): Promise<Rounds> {
  const rounds = new Map<string, Round[]>(names.map((name) => [name, []]));
  await withImplementations(names, (implementations) =>
    runRounds(implementations, { warmUp: WARM_UP }, async (implementation, isCounted) => {
      const measured = await measureOnce(implementation, workloadOf(implementation.name));
      if (isCounted) rounds.get(implementation.name)?.push(measured);
    }),
  );
  return (name) => {
    const knownRounds = rounds.get(name);
    if (knownRounds === undefined) throw new Error(`"${name}" was not measured`);
    return knownRounds;
  };
}

async function withImplementations(
  names: readonly string[],
  use: (implementations: readonly RunningImplementation[]) => Promise<void>,
): Promise<void> {
  const [name, ...rest] = names;
  if (name === undefined) return use([]);
  await withImplementation(name, (implementation) =>
    withImplementations(rest, (otherRunningImplementations) => use([implementation, ...otherRunningImplementations])),
  );
}

async function measureOnce({ client, server }: RunningImplementation, workload: Workload): Promise<Round> {
  const before = (await server?.cpuMicros()) ?? 0;
  const measured = await client.call<Measured>("perform", workload);
  const after = (await server?.cpuMicros()) ?? 0;
  return { ...measured, serverCpu: after - before };
}

/** Pairs of acquire and release per second, round by round. */
export function pairRates(rounds: readonly Round[]): readonly number[] {
  return rounds.map(({ pairs, ms }) => (pairs / ms) * 1_000);
}

/** Microseconds that half of the pairs took at most, round by round. */
export function medianLatencies(rounds: readonly Round[]): readonly number[] {
  return rounds.map(({ p50 }) => p50);
}

/** Microseconds of CPU a pair, client and server together, round by round. */
export function cpuPerPair(rounds: readonly Round[]): readonly number[] {
  return rounds.map(({ pairs, cpu, serverCpu }) => (cpu + serverCpu) / pairs);
}

/** How unevenly the callers were served, round by round. */
export function grantVariation(rounds: readonly Pick<Round, "grantsPerCaller">[]): readonly number[] {
  return rounds.map(({ grantsPerCaller }) => variation(grantsPerCaller));
}

/** Callers that got nothing, round by round. */
export function starvedCallers(rounds: readonly Pick<Round, "grantsPerCaller">[]): readonly number[] {
  return rounds.map(({ grantsPerCaller }) => grantsPerCaller.filter((grants) => grants === 0).length);
}

/** The usual columns, and more. */
export function toRow(name: string, rounds: readonly Round[], extraFigures: Row["figures"] = {}): Row {
  const figures: Record<string, Spread> = { "pairs/s": computeSpread(pairRates(rounds)) };
  if (rounds.every(({ p50 }) => Number.isFinite(p50))) {
    figures["p50 us"] = computeSpread(medianLatencies(rounds));
    figures["p99 us"] = computeSpread(rounds.map(({ p99 }) => p99));
  }
  figures["client CPU us/pair"] = computeSpread(rounds.map(({ cpu, pairs }) => cpu / pairs));
  if (rounds.some(({ serverCpu }) => serverCpu > 0)) {
    figures["server CPU us/pair"] = computeSpread(rounds.map(({ serverCpu, pairs }) => serverCpu / pairs));
  }
  return { name, figures: { ...figures, ...extraFigures } };
}
