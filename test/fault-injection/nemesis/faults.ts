/** The faults of a nemesis, and plans of the pairs in which they strike together. */

import type { Random } from "../../../src/testing/random.ts";
import type { RunningProcess } from "../../support/processes/process-harness.ts";
import type { ClientSettings } from "./workload.ts";

export const FAULTS = [
  "kill wrapper",
  "kill server",
  "restart",
  "stop and continue",
  "cut",
  "cut subscribers",
  "fail over",
  "full disk",
] as const;

export type FaultName = (typeof FAULTS)[number];

/** Two faults; the first one strikes first. */
export type Pair = readonly [FaultName, FaultName];

/** The processes that are killed and stopped. */
export interface Victims {
  /** One of them; null: none runs. */
  pickVictim(): RunningProcess | null;
}

/** The target of a nemesis: a store with its clients. */
export interface Target {
  readonly name: string;
  readonly clients: ClientSettings;
  /** The load whose processes are killed and stopped. */
  strike(victims: Victims): void;
  /** Injects a fault. False: it was not possible at this moment. */
  inject(fault: FaultName): Promise<boolean>;
  /** Repairs every fault, in an order of its own choice. All faults are repaired when it settles. */
  heal(): Promise<void>;
  close(): Promise<void>;
}

/** Every pair of two different faults of these, in the order of FAULTS. */
export function faultPairs(faults: readonly FaultName[]): Pair[] {
  return faults.flatMap((first, index) => faults.slice(index + 1).map((second): Pair => [first, second]));
}

/** Each pair so many times, in random order and with a random first fault. */
export function shuffleSchedule(pairs: readonly Pair[], times: number, random: Random): Pair[] {
  const plan = Array.from({ length: times }, () => pairs).flat();
  return shuffle(plan, random).map(([first, second]) => (random.chance(0.5) ? [first, second] : [second, first]));
}

export function shuffle<T>(items: readonly T[], random: Random): T[] {
  const remaining = [...items];
  const order: T[] = [];
  while (remaining.length > 0) order.push(...remaining.splice(random.int(remaining.length), 1));
  return order;
}
