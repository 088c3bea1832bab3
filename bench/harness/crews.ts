/** Several client processes at one server, each contestant with a server and clients of its own. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { contestants } from "../contestants/contestants.ts";
import { Child } from "./calls.ts";
import type { Measured } from "./client.child.ts";
import { quiet } from "./machine.ts";
import type { Round } from "./rounds.ts";
import { clientProgram, ROUNDS, WARM_UP } from "./rounds.ts";
import type { Workload } from "./workload.ts";

export interface Crew {
  readonly name: string;
  readonly clients: readonly Child[];
  readonly server: Child;
  /** Its server's, see harness/address.ts. */
  readonly address: string;
}

export interface CrewOptions {
  readonly processes: number;
  /** TCP instead of a Unix socket. */
  readonly tcp: boolean;
  readonly nodeOptions?: readonly string[];
}

/** Starts a contestant's server and clients, gives them to `use`, and ends them. */
export async function withCrew<T>(
  name: string,
  { processes, tcp, nodeOptions = [] }: CrewOptions,
  use: (crew: Crew) => Promise<T>,
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-bench-"));
  const program = contestants(name).server;
  if (program === undefined) throw new Error(`"${name}" has no server`);
  const server = new Child(new URL(`../servers/${program}.child.js`, import.meta.url), [], nodeOptions);
  const clients: Child[] = [];
  try {
    const address = await server.call<string>("listen", { path: join(folder, "s"), tcp });
    for (let n = 0; n < processes; n++) clients.push(new Child(clientProgram, [name, address], nodeOptions));
    return await use({ name, clients, server, address });
  } finally {
    await Promise.all([...clients, server].map((child) => child.end()));
    rmSync(folder, { recursive: true, force: true });
  }
}

/** All of the crews at once. */
export async function withCrews<T>(
  names: readonly string[],
  options: CrewOptions,
  use: (crews: readonly Crew[]) => Promise<T>,
): Promise<T> {
  const [name, ...rest] = names;
  if (name === undefined) return use([]);
  return withCrew(name, options, (crew) => withCrews(rest, options, (others) => use([crew, ...others])));
}

/** Rounds as of interleave(), with all clients of a crew at work together; each has keys of its own. */
export async function interleaveCrews(
  names: readonly string[],
  options: CrewOptions,
  workload: Workload,
): Promise<(name: string) => readonly Round[]> {
  const rounds = new Map<string, Round[]>(names.map((name) => [name, []]));
  // processes that share the cores are compiled as far as one alone is
  const warmUp = WARM_UP * Math.ceil(options.processes / 2);
  await withCrews(names, options, async (crews) => {
    for (let round = -warmUp; round < ROUNDS; round++) {
      for (let turn = 0; turn < crews.length; turn++) {
        const crew = crews[(turn + round + warmUp) % crews.length] as Crew;
        const measured = await together(crew, workload);
        if (round >= 0) rounds.get(crew.name)?.push(measured);
      }
    }
  });
  return (name) => rounds.get(name) ?? [];
}

async function together({ clients, server }: Crew, workload: Workload): Promise<Round> {
  await quiet();
  const before = await server.cpu();
  const all = await Promise.all(
    clients.map((client, n) => client.call<Measured>("perform", { ...workload, prefix: `${n}:` })),
  );
  const serverCpu = (await server.cpu()) - before;
  const pairs = sum(all.map((one) => one.pairs));
  return {
    pairs,
    // so that pairs / ms is the sum of the clients' rates, whose times differ a little
    ms: pairs / sum(all.map((one) => one.pairs / one.ms)),
    cpu: sum(all.map(({ cpu }) => cpu)),
    grantsPerCaller: all.flatMap(({ grantsPerCaller }) => grantsPerCaller),
    p50: Number.NaN,
    p99: Number.NaN,
    serverCpu,
  };
}

function sum(figures: readonly number[]): number {
  return figures.reduce((total, one) => total + one, 0);
}
