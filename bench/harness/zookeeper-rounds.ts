/**
 * Rounds on one ZooKeeper, as it comes (every write is synced to the disk): Holdfast in Node, Curator in JVMs, in
 * turns.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Row } from "./bench-case.ts";
import type { BenchStore } from "./bench-store.ts";
import { ChildProcessRpc } from "./child-rpc.ts";
import { CuratorClient, compileCurator } from "./curator.ts";
import { IS_QUICK_RUN } from "./quick-run.ts";
import { CLIENT_PROGRAM, grantVariation, starvedCallers } from "./rounds.ts";
import { runRounds } from "./run-rounds.ts";
import type { WindowLoad, WindowSample } from "./sampling-window.ts";
import type { Spread } from "./stats.ts";
import { computeSpread, quantile, sum } from "./stats.ts";
import { grantRates } from "./store-rounds.ts";
import { withBenchZooKeeper } from "./zookeeper.ts";

export const CURATOR = "Curator";

/** A JVM takes its time to compile. */
const WARM_UP = 3;
/** Every process has begun, so the first one has no lead. */
const LEAD_MS = 60;
const FINISH_TIMEOUT_MS = 10_000;
/** With fewer for each caller a grant more or less would look like unfairness. */
const MIN_TURNS = 4;

export interface ZooKeeperRound extends WindowSample {
  readonly grants: number;
  /** Of ZooKeeper, microseconds. */
  readonly serverCpu: number;
}

export type ZooKeeperRounds = (name: string) => readonly ZooKeeperRound[];

/** One process of an implementation. */
interface MeasuredProcess {
  begin(load: WindowLoad): Promise<unknown>;
  mark(): Promise<unknown>;
  look(): Promise<WindowSample>;
  finish(): Promise<unknown>;
  end(): Promise<unknown>;
}

interface MeasuredGroup {
  readonly name: string;
  readonly processes: readonly MeasuredProcess[];
}

export interface ZooKeeperOptions {
  readonly processes: number;
  readonly load: WindowLoad;
  readonly ms: number;
}

export function measureOnZooKeeper(names: readonly string[], options: ZooKeeperOptions): Promise<ZooKeeperRounds> {
  const rounds = new Map<string, ZooKeeperRound[]>(names.map((name) => [name, []]));
  return withBenchZooKeeper(async (store) => {
    const groups: MeasuredGroup[] = [];
    const classes = mkdtempSync(join(tmpdir(), "holdfast-curator-"));
    compileCurator(classes);
    try {
      for (const name of names) groups.push(await startGroup(name, options.processes, store.address, classes));
      await runRounds(groups, { warmUp: WARM_UP }, async (group, isCounted) => {
        const round = await measureRound(group, options, store);
        if (isCounted) rounds.get(group.name)?.push(round);
      });
    } finally {
      await Promise.all(groups.flatMap(({ processes }) => processes.map((process) => process.end())));
      rmSync(classes, { recursive: true });
    }
    return (name) => rounds.get(name) ?? [];
  });
}

async function startGroup(name: string, processes: number, address: string, classes: string): Promise<MeasuredGroup> {
  const start = (): Promise<MeasuredProcess> =>
    name === CURATOR ? CuratorClient.start(classes, address) : startNodeProcess(name, address);
  return { name, processes: await Promise.all(Array.from({ length: processes }, start)) };
}

async function startNodeProcess(name: string, address: string): Promise<MeasuredProcess> {
  const child = new ChildProcessRpc(CLIENT_PROGRAM, [name, address]);
  await child.call("ready");
  return {
    begin: (load) => child.call("begin", load),
    mark: () => child.call("mark"),
    look: () => child.call<WindowSample>("look"),
    finish: () => child.call("finish", FINISH_TIMEOUT_MS),
    end: () => child.end(),
  };
}

async function measureRound(
  { name, processes }: MeasuredGroup,
  { load, ms }: ZooKeeperOptions,
  store: BenchStore,
): Promise<ZooKeeperRound> {
  const runAll = <T>(step: (process: MeasuredProcess) => Promise<T>): Promise<T[]> => Promise.all(processes.map(step));
  await runAll((process) => process.begin({ ...load, prefix: name === CURATOR ? "key-" : `${name}-` }));
  await delay(LEAD_MS);
  await runAll((process) => process.mark());
  const before = await store.work();
  const windowSamples = await sampleWindow(runAll, load.callers * processes.length, IS_QUICK_RUN ? ms / 2 : ms);
  const serverCpu = (await store.work()).cpu - before.cpu;
  await runAll((process) => process.finish());
  const grantsPerCaller = windowSamples.flatMap((windowSample) => windowSample.grantsPerCaller);
  const grants = sum(grantsPerCaller);
  return {
    grants,
    // so that grants / ms is the sum of the processes' rates, whose times differ a little
    ms: grants / sum(windowSamples.map((windowSample) => sum(windowSample.grantsPerCaller) / windowSample.ms)),
    cpu: sum(windowSamples.map(({ cpu }) => cpu)),
    serverCpu,
    grantsPerCaller,
    p50: quantile(
      windowSamples.map(({ p50 }) => p50),
      0.5,
    ),
    p99: quantile(
      windowSamples.map(({ p99 }) => p99),
      0.5,
    ),
    most: Math.max(...windowSamples.map(({ most }) => most)),
  };
}

/** After a while; and after each caller can have had a turn, however slow the machine is. */
async function sampleWindow(
  runAll: (step: (process: MeasuredProcess) => Promise<WindowSample>) => Promise<WindowSample[]>,
  callers: number,
  ms: number,
): Promise<WindowSample[]> {
  const endsAt = performance.now() + FINISH_TIMEOUT_MS;
  for (;;) {
    await delay(ms);
    const windowSamples = await runAll((process) => process.look());
    const grants = sum(windowSamples.flatMap(({ grantsPerCaller }) => grantsPerCaller));
    if (grants >= callers * MIN_TURNS || performance.now() > endsAt) return windowSamples;
  }
}

export function zooKeeperRow(name: string, rounds: readonly ZooKeeperRound[]): Row {
  const figures: Record<string, Spread> = { "grants/s": computeSpread(grantRates(rounds)) };
  const times = { "p50 ms": "p50", "p99 ms": "p99", "longest ms": "most" } as const;
  for (const [column, field] of Object.entries(times)) {
    const values = rounds.map((round) => round[field] / 1_000);
    // nothing was timed: no figure survives the way between the processes
    if (values.every((time) => Number.isFinite(time) && time > 0)) figures[column] = computeSpread(values);
  }
  if ((rounds[0]?.grantsPerCaller.length ?? 0) > 1) {
    figures["spread of grants"] = computeSpread(grantVariation(rounds));
    figures["got nothing"] = computeSpread(starvedCallers(rounds));
  }
  figures["client CPU us/grant"] = computeSpread(rounds.map(({ cpu, grants }) => cpu / grants));
  figures["ZooKeeper CPU us/grant"] = computeSpread(rounds.map(({ serverCpu, grants }) => serverCpu / grants));
  return { name, figures };
}
