/** The faults of a nemesis on processes of the tests, and plans of the pairs in which they strike together: those of a torture, and some more. */

import { setTimeout as delay } from "node:timers/promises";
import type { Random } from "../../../src/testing/random.ts";
import { until } from "../../../src/testing/until.ts";
import { createFault } from "../../../src/torture/faults.ts";
import type { Fault, Strike } from "../../../src/torture/nemesis.ts";
import { injectFault } from "../../../src/torture/nemesis.ts";
import type { PlaceProxy } from "../../../src/torture/place-proxy.ts";
import type { StartedStore } from "../../../src/torture/stores/started-store.ts";
import { isStoreFault } from "../../../src/torture/stores/started-store.ts";
import { WorkerPool } from "../../../src/torture/worker-pool.ts";
import type { RunningProcess } from "../../support/processes/process-harness.ts";
import type { SmallDisk } from "../../support/processes/small-disk.ts";
import type { ClientSettings } from "./workload.ts";

/** Two faults; the first one strikes first. */
export type Pair = readonly [Fault, Fault];

/** The processes that are killed and stopped. */
export interface Victims {
  /** One of them; null: none runs. */
  pickVictim(): RunningProcess | null;
}

/** The target of a nemesis: a store with its clients. */
export interface Target {
  readonly name: string;
  readonly clients: ClientSettings;
  /** Those that it can have, and that strike these victims. */
  faults(victims: Victims): readonly Fault[];
  /** Settles when the store can be used as before the faults. */
  waitUntilWhole(): Promise<void>;
  close(): Promise<void>;
}

/** Faults of the store last for up to 2.3 times as long. */
const SHORT_MS = 1_000;
const LONGEST_STOP_MS = 3_000;
/** A fault that is not possible now is tried again: a fail-over is refused while another one is in progress. */
const POSSIBLE_WITHIN_MS = 20_000;

const nothing = async (): Promise<void> => undefined;

export function createFaultOf(
  name: string,
  strike: (random: Random) => Omit<Strike, "workers"> | null | Promise<Omit<Strike, "workers"> | null>,
): Fault {
  return {
    name,
    prepare: nothing,
    strike: async (random) => {
      const begun = await strike(random);
      return begun === null ? null : { workers: null, ...begun };
    },
  };
}

/** Of the processes of the tests, that use a store. */
export function victimFaults(victims: Victims): Fault[] {
  return [
    createFaultOf("kill", () => {
      const victim = victims.pickVictim();
      victim?.kill();
      return victim === null ? null : { ms: 0, repair: nothing };
    }),
    createFaultOf("stop", (random) => {
      const victim = victims.pickVictim();
      victim?.process.kill("SIGSTOP");
      return victim === null
        ? null
        : { ms: random.int(LONGEST_STOP_MS), repair: async () => void victim.process.kill("SIGCONT") };
    }),
  ];
}

/** Not a byte more fits on the disk that this gives. */
export function diskFault(findDisk: () => SmallDisk | Promise<SmallDisk>): Fault {
  return createFaultOf("full disk", async (random) => {
    const disk = await findDisk();
    disk.fill();
    return { ms: random.int(SHORT_MS), repair: async () => disk.clear() };
  });
}

/** Those of a torture, of the store and of its connections. */
export function tortureFaults(store: Pick<StartedStore, "faults" | "inject">, proxies: readonly PlaceProxy[]): Fault[] {
  // it has no workers of its own
  const workers = new WorkerPool({
    command: ["true"],
    places: 0,
    settingsOf: () => {
      throw new Error("there is no place for a worker");
    },
    report: () => undefined,
    now: () => 0,
  });
  const targets = { workers, proxies, store: store as StartedStore, ttlMs: SHORT_MS };
  const names = [...store.faults, ...(proxies.length === 0 ? [] : (["cut", "partition"] as const))];
  return names.map((name) => createFault(name, targets));
}

/** Every pair of two different faults of these. The store is struck by one at a time. */
export function faultPairs(faults: readonly Fault[]): Pair[] {
  return faults.flatMap((first, index) =>
    faults
      .slice(index + 1)
      .filter((second) => !(isStoreFault(first.name) && isStoreFault(second.name)))
      .map((second): Pair => [first, second]),
  );
}

export function pairIncludes([first, second]: Pair, names: readonly string[]): boolean {
  return names.includes(first.name) || names.includes(second.name);
}

/** Each pair so many times, in random order and with a random first fault. */
export function shuffleSchedule(pairs: readonly Pair[], times: number, random: Random): Pair[] {
  const remaining = Array.from({ length: times }, () => pairs).flat();
  const order: Pair[] = [];
  while (remaining.length > 0) order.push(...remaining.splice(random.int(remaining.length), 1));
  return order.map(([first, second]) => (random.chance(0.5) ? [first, second] : [second, first]));
}

/** Both are repaired, and the store can be used as before, when it settles. */
export async function strikeTogether(target: Target, [first, second]: Pair, random: Random): Promise<void> {
  const options = { random, report: () => undefined, now: () => 0 };
  const { signal } = new AbortController();
  const strike = (fault: Fault): Promise<unknown> =>
    until(() => injectFault(options, fault, 0, 0, Number.POSITIVE_INFINITY, signal), {
      within: POSSIBLE_WITHIN_MS,
      what: `"${fault.name}" to be possible`,
    });
  const lagMs = random.int(300);
  await Promise.all([strike(first), delay(lagMs).then(() => strike(second))]);
  await target.waitUntilWhole();
}
