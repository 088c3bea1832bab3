/**
 * Rounds at one store: every implementation once in each, with as many processes as wanted, one implementation at a
 * time.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { findImplementation } from "../implementations/implementations.ts";
import type { Row } from "./bench-case.ts";
import type { BenchStore, StoreWork } from "./bench-store.ts";
import { allCallsBetween, callsBetween } from "./bench-store.ts";
import { ChildProcessRpc } from "./child-rpc.ts";
import { IS_QUICK_RUN } from "./quick-run.ts";
import { CLIENT_PROGRAM, grantVariation, starvedCallers } from "./rounds.ts";
import { runRounds } from "./run-rounds.ts";
import type { WindowLoad, WindowResult, WindowSample } from "./sampling-window.ts";
import type { Spread } from "./stats.ts";
import { computeSpread, sum } from "./stats.ts";

/** Every process has begun, so the first one has no lead. */
const LEAD_MS = 40;
/** For callers that still wait when a round is over; then their processes are replaced. */
const FINISH_TIMEOUT_MS = 500;
/** A new process compiles its code before it is measured again. */
const WARM_MS = 150;
/** With fewer grants for each caller, one more or less would look unfair. */
const MIN_GRANTS = 50;
const MAX_WINDOWS = 8;

/** A kind of store, and what the bench knows of the implementations on it. */
export interface StoreKind {
  /** Starts one, gives it to `use`, and ends it. */
  withStore<T>(use: (store: BenchStore) => Promise<T>): Promise<T>;
  isRival(name: string): boolean;
  /** The commands that an implementation sends; undefined: they are not counted. */
  countedCommands(name: string): readonly string[] | undefined;
}

export interface StoreRound {
  readonly grants: number;
  readonly ms: number;
  /** Of its processes together, and of the store or its broker, microseconds. */
  readonly cpu: number;
  readonly serverCpu: number;
  readonly grantsPerCaller: readonly number[];
  /** Microseconds: medians and p99 over the processes' own, and the longest. */
  readonly p50: number;
  readonly p99: number;
  readonly most: number;
  /** Commands it sent per grant in the window; NaN if they are not counted. */
  readonly commands: number;
  /** The same per pair, from the first command to the last. */
  readonly sent: number;
  /** Commands that the store performed for a pair within scripts; NaN if they are not counted. */
  readonly inside: number;
  /** Connections of all its processes at the end of the window. */
  readonly connections: number;
  /** Callers that still waited half a second after the last had asked. */
  readonly stuck: number;
}

export interface StoreRounds {
  (name: string): readonly StoreRound[];
  /** Why an implementation could not go on; null if it could. */
  failure(name: string): string | null;
}

export interface StoreProcessGroup {
  readonly name: string;
  clients: readonly ChildProcessRpc[];
  /** How often its processes were replaced. */
  replacements: number;
  start(): ChildProcessRpc[];
  /** Its own server, where it does not use the store; it may keep its state in the folder. */
  readonly broker: ChildProcessRpc | null;
  readonly folder: string;
}

export interface LoadOptions {
  readonly processes: number | ((name: string) => number);
  readonly load: WindowLoad | ((name: string) => WindowLoad);
  readonly ms: number;
  /**
   * How long the first round is, which is not counted: for loops so slow that V8 compiles during many rounds. Default
   * `ms`.
   */
  readonly warmUpMs?: number;
  /** Default 7. Several short rounds compare better than few long ones where the disk is now quick, now slow. */
  readonly rounds?: number;
  /** Watch Holdfast, on a slow machine, until every caller can have had so many grants; true: 50. Default false. */
  readonly fair?: boolean | number;
}

export async function measureOnStore(
  kind: StoreKind,
  names: readonly string[],
  options: LoadOptions,
): Promise<StoreRounds> {
  const rounds = new Map<string, StoreRound[]>(names.map((name) => [name, []]));
  const failures = new Map<string, string>();
  await kind.withStore((server) =>
    withStoreGroups(names, options.processes, server, (groups) =>
      runRounds(groups, { counted: options.rounds }, async (group, isCounted) => {
        if (failures.has(group.name)) return;
        try {
          const ms = isCounted ? options.ms : (options.warmUpMs ?? options.ms);
          const storeRound = await measureRound(kind, group, server, { ...options, ms });
          if (isCounted) rounds.get(group.name)?.push(storeRound);
        } catch (error) {
          failures.set(group.name, error instanceof Error ? (error.message.split("\n")[0] ?? "") : String(error));
        }
      }),
    ),
  );
  const [ownFailure] = [...failures].filter(([name]) => !kind.isRival(name));
  if (ownFailure !== undefined) throw new Error(ownFailure.join(": "));
  const roundsOf = (name: string): readonly StoreRound[] => rounds.get(name) ?? [];
  return Object.assign(roundsOf, { failure: (name: string) => failures.get(name) ?? null });
}

/** Starts the processes of all of them, gives them to `use`, and ends them. */
export async function withStoreGroups<T>(
  names: readonly string[],
  processes: number | ((name: string) => number),
  server: BenchStore,
  use: (groups: readonly StoreProcessGroup[]) => Promise<T>,
): Promise<T> {
  const groups: StoreProcessGroup[] = [];
  try {
    for (const name of names)
      groups.push(await startGroup(name, typeof processes === "number" ? processes : processes(name), server));
    return await use(groups);
  } finally {
    const allProcesses = groups.flatMap(({ clients, broker }) => [...clients, ...(broker === null ? [] : [broker])]);
    await Promise.all(allProcesses.map((child) => child.end()));
    for (const { folder } of groups) rmSync(folder, { recursive: true, force: true });
  }
}

async function startGroup(name: string, processes: number, server: BenchStore): Promise<StoreProcessGroup> {
  const program = findImplementation(name).server;
  const broker =
    program === undefined ? null : new ChildProcessRpc(new URL(`../servers/${program}.child.js`, import.meta.url), []);
  const folder = mkdtempSync(join(tmpdir(), "holdfast-bench-"));
  const address = (await broker?.call<string>("listen", { path: join(folder, "s"), tcp: true })) ?? server.address;
  const start = (): ChildProcessRpc[] =>
    Array.from({ length: processes }, () => new ChildProcessRpc(CLIENT_PROGRAM, [name, address]));
  return { name, start, clients: start(), broker, folder, replacements: 0 };
}

function callAll<T>({ clients }: StoreProcessGroup, call: string, argument?: unknown): Promise<T[]> {
  return Promise.all(clients.map((client) => client.call<T>(call, argument)));
}

async function measureRound(
  kind: StoreKind,
  group: StoreProcessGroup,
  server: BenchStore,
  options: LoadOptions,
): Promise<StoreRound> {
  const { name, broker } = group;
  const load = typeof options.load === "function" ? options.load(name) : options.load;
  const sends = kind.countedCommands(name);
  const count = (before: StoreWork, after: StoreWork): number =>
    sends === undefined ? Number.NaN : callsBetween(before, after, sends);
  // one after another: each may have to create its tables
  for (const client of group.clients) await client.call("ready");
  const first = await server.work();
  await callAll(group, "begin", { ...load, prefix: `${name}:${group.replacements}:` } satisfies WindowLoad);
  await delay(LEAD_MS);
  await callAll(group, "mark");
  const [before, brokerBefore] = [await server.work(), (await broker?.cpuMicros()) ?? 0];
  const minGrants = kind.isRival(name) ? 0 : toMinGrants(options);
  const windowSamples = await sampleWindow(group, load, options.ms, minGrants);
  const connections = sum(group.clients.map((client) => client.countConnections()));
  const [after, brokerAfter] = [await server.work(), (await broker?.cpuMicros()) ?? 0];
  const results = await callAll<WindowResult>(group, "finish", FINISH_TIMEOUT_MS);
  const last = await server.work();
  const pairs = sum(results.map((result) => result.pairs));
  const sent = count(first, last);
  const stuck = sum(results.map((end) => end.stuck));
  if (stuck > 0) await replaceProcesses(group);
  const grants = sum(windowSamples.flatMap(({ grantsPerCaller }) => grantsPerCaller));
  return {
    grants,
    // so that grants / ms is the sum of the clients' rates, whose times differ a little
    ms: grants / sum(windowSamples.map((windowSample) => sum(windowSample.grantsPerCaller) / windowSample.ms)),
    cpu: sum(windowSamples.map(({ cpu }) => cpu)),
    serverCpu: broker === null ? after.cpu - before.cpu : brokerAfter - brokerBefore,
    grantsPerCaller: windowSamples.flatMap(({ grantsPerCaller }) => grantsPerCaller),
    p50: mean(windowSamples.map(({ p50 }) => p50)),
    p99: mean(windowSamples.map(({ p99 }) => p99)),
    most: Math.max(...windowSamples.map(({ most }) => most)),
    commands: count(before, after) / grants,
    sent: sent / pairs,
    inside: (allCallsBetween(first, last) - sent) / pairs,
    connections,
    stuck,
  };
}

function toMinGrants({ fair = false }: LoadOptions): number {
  if (typeof fair === "number") return fair;
  return fair ? MIN_GRANTS : 0;
}

async function sampleWindow(
  group: StoreProcessGroup,
  { callers }: WindowLoad,
  ms: number,
  minGrantsPerCaller: number,
): Promise<WindowSample[]> {
  for (let windows = 1; ; windows++) {
    await delay(IS_QUICK_RUN ? ms / 4 : ms);
    const windowSamples = await callAll<WindowSample>(group, "look");
    const grants = sum(windowSamples.flatMap(({ grantsPerCaller }) => grantsPerCaller));
    const minGrants = minGrantsPerCaller * callers * windowSamples.length;
    if (grants >= Math.max(1, minGrants) || windows === MAX_WINDOWS) return windowSamples;
  }
}

/** With keys of their own: a process that was ended may have held the last ones. */
async function replaceProcesses(group: StoreProcessGroup): Promise<void> {
  await Promise.all(group.clients.map((client) => client.end()));
  group.clients = group.start();
  group.replacements++;
  await callAll(group, "begin", {
    callers: 1,
    keys: 1,
    timed: "nothing",
    prefix: `${group.replacements}:warm:`,
  } satisfies WindowLoad);
  await delay(WARM_MS);
  await callAll(group, "finish", FINISH_TIMEOUT_MS);
}

/** Grants a second, round by round. */
export function grantRates(rounds: readonly Pick<StoreRound, "grants" | "ms">[]): readonly number[] {
  return rounds.map(({ grants, ms }) => (grants / ms) * 1_000);
}

export function figurePerRound(
  rounds: readonly StoreRound[],
  figure: keyof Omit<StoreRound, "grantsPerCaller">,
): readonly number[] {
  return rounds.map((round) => round[figure]);
}

/** Microseconds of the clients' CPU per grant, round by round. */
export function clientCpuPerGrant(rounds: readonly StoreRound[]): readonly number[] {
  return rounds.map(({ cpu, grants }) => cpu / grants);
}

/** Microseconds of the store's CPU per grant, round by round. */
export function serverCpuPerGrant(rounds: readonly StoreRound[]): readonly number[] {
  return rounds.map(({ serverCpu, grants }) => serverCpu / grants);
}

/** In each round the best of those who ended it. */
export function bestRates(rounds: StoreRounds, names: readonly string[]): readonly number[] {
  const allRates = names.filter((name) => rounds.failure(name) === null).map((name) => grantRates(rounds(name)));
  const count = Math.max(0, ...allRates.map((rates) => rates.length));
  return Array.from({ length: count }, (_, round) => Math.max(...allRates.map((rates) => rates[round] ?? 0)));
}

/** The columns of a table for one that may have failed. */
export function storeRow(name: string, rounds: StoreRounds, columns: readonly Column[]): Row {
  const failure = rounds.failure(name);
  if (failure !== null) return { name: `${name} (failed: ${failure})`, figures: {} };
  const storeRounds = rounds(name);
  const figures: Record<string, Spread> = {};
  for (const column of columns) {
    const [title, figure] = COLUMNS[column];
    const values = figure(storeRounds);
    if (values.every((value) => Number.isFinite(value))) figures[title] = computeSpread(values);
  }
  return { name, figures };
}

export type Column = keyof typeof COLUMNS;

const COLUMNS = {
  rate: ["grants/s", grantRates],
  p50: ["p50 us", (rounds) => figurePerRound(rounds, "p50")],
  p99: ["p99 us", (rounds) => figurePerRound(rounds, "p99")],
  longest: ["longest ms", (rounds) => figurePerRound(rounds, "most").map((micros) => micros / 1_000)],
  commands: ["commands/grant", (rounds) => figurePerRound(rounds, "commands")],
  spread: ["spread of grants", grantVariation],
  starved: ["callers with none", starvedCallers],
  fewest: ["fewest grants", (rounds) => rounds.map(({ grantsPerCaller }) => Math.min(...grantsPerCaller))],
  largest: ["most grants", (rounds) => rounds.map(({ grantsPerCaller }) => Math.max(...grantsPerCaller))],
  stuck: ["still waiting 0.5 s later", (rounds) => figurePerRound(rounds, "stuck")],
  clientCpu: ["client CPU us", clientCpuPerGrant],
  serverCpu: ["server CPU us", serverCpuPerGrant],
  inside: ["commands in scripts", (rounds) => figurePerRound(rounds, "inside")],
} as const satisfies Record<string, readonly [string, (rounds: readonly StoreRound[]) => readonly number[]]>;

/**
 * Of those there are: a process that got nothing, or timed nothing, has none (NaN, which is null behind the channel).
 */
function mean(figures: readonly number[]): number {
  const finiteFigures = figures.filter((figure) => Number.isFinite(figure));
  return sum(finiteFigures) / finiteFigures.length;
}
