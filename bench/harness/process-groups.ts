/** Several client processes at one server, each implementation with a server and clients of its own. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findImplementation } from "../implementations/implementations.ts";
import { ChildProcessRpc } from "./child-rpc.ts";
import type { Measured } from "./client.child.ts";
import type { Workload } from "./closed-loop.ts";
import type { Round } from "./rounds.ts";
import { CLIENT_PROGRAM, WARM_UP } from "./rounds.ts";
import { runRounds } from "./run-rounds.ts";
import { sum } from "./stats.ts";

export interface ProcessGroup {
  readonly name: string;
  readonly clients: readonly ChildProcessRpc[];
  readonly server: ChildProcessRpc;
  /** Its server's, see harness/address.ts. */
  readonly address: string;
}

export interface ProcessGroupOptions {
  readonly processes: number;
  /** TCP instead of a Unix socket. */
  readonly tcp: boolean;
  readonly nodeOptions?: readonly string[];
}

/** Starts an implementation's server and clients, gives them to `use`, and ends them. */
export async function withProcessGroup<T>(
  name: string,
  { processes, tcp, nodeOptions = [] }: ProcessGroupOptions,
  use: (group: ProcessGroup) => Promise<T>,
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-bench-"));
  const program = findImplementation(name).server;
  if (program === undefined) throw new Error(`"${name}" has no server`);
  const server = new ChildProcessRpc(new URL(`../servers/${program}.child.js`, import.meta.url), [], nodeOptions);
  const clients: ChildProcessRpc[] = [];
  try {
    const address = await server.call<string>("listen", { path: join(folder, "s"), tcp });
    for (let n = 0; n < processes; n++) clients.push(new ChildProcessRpc(CLIENT_PROGRAM, [name, address], nodeOptions));
    return await use({ name, clients, server, address });
  } finally {
    await Promise.all([...clients, server].map((child) => child.end()));
    rmSync(folder, { recursive: true, force: true });
  }
}

/** All of the groups at once. */
export async function withProcessGroups<T>(
  names: readonly string[],
  options: ProcessGroupOptions,
  use: (groups: readonly ProcessGroup[]) => Promise<T>,
): Promise<T> {
  const [name, ...rest] = names;
  if (name === undefined) return use([]);
  return withProcessGroup(name, options, (group) =>
    withProcessGroups(rest, options, (otherProcessGroups) => use([group, ...otherProcessGroups])),
  );
}

/** Rounds as of interleave(), with all clients of a group at work together; each has keys of its own. */
export async function interleaveProcessGroups(
  names: readonly string[],
  options: ProcessGroupOptions,
  workload: Workload,
): Promise<(name: string) => readonly Round[]> {
  const rounds = new Map<string, Round[]>(names.map((name) => [name, []]));
  // processes that share the cores are compiled as far as one alone is
  const warmUp = WARM_UP * Math.ceil(options.processes / 2);
  await withProcessGroups(names, options, (groups) =>
    runRounds(groups, { warmUp }, async (group, isCounted) => {
      const measured = await measureGroup(group, workload);
      if (isCounted) rounds.get(group.name)?.push(measured);
    }),
  );
  return (name) => rounds.get(name) ?? [];
}

async function measureGroup({ clients, server }: ProcessGroup, workload: Workload): Promise<Round> {
  const before = await server.cpuMicros();
  const results = await Promise.all(
    clients.map((client, n) => client.call<Measured>("perform", { ...workload, prefix: `${n}:` })),
  );
  const serverCpu = (await server.cpuMicros()) - before;
  const pairs = sum(results.map((result) => result.pairs));
  return {
    pairs,
    // so that pairs / ms is the sum of the clients' rates, whose times differ a little
    ms: pairs / sum(results.map((result) => result.pairs / result.ms)),
    cpu: sum(results.map(({ cpu }) => cpu)),
    grantsPerCaller: results.flatMap(({ grantsPerCaller }) => grantsPerCaller),
    p50: Number.NaN,
    p99: Number.NaN,
    serverCpu,
  };
}
