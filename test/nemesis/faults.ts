/** The faults that a nemesis knows, and plans in which pairs of them strike together. */

import type { Random } from "../../src/conformance/random.ts";
import type { Clients, Works } from "./works.ts";

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

/** What a nemesis strikes: a store with its clients. */
export interface Target {
  readonly name: string;
  readonly clients: Clients;
  /** Whose wrappers are killed and stopped. */
  strike(works: Works): void;
  /** Injects a fault. False: it was not possible at this moment. */
  inject(fault: FaultName): Promise<boolean>;
  /** Repairs whatever was broken, in an order of its own choice. Nothing is broken when it settles. */
  heal(): Promise<void>;
  close(): Promise<void>;
}

/** Every pair of two different faults of these, in the order of FAULTS. */
export function pairsOf(faults: readonly FaultName[]): Pair[] {
  return faults.flatMap((one, at) => faults.slice(at + 1).map((other): Pair => [one, other]));
}

/** Each pair so many times, in random order, and which of its faults strikes first is random, too. */
export function planOf(pairs: readonly Pair[], times: number, random: Random): Pair[] {
  const plan = Array.from({ length: times }, () => pairs).flat();
  return shuffled(plan, random).map(([one, other]) => (random.chance(0.5) ? [one, other] : [other, one]));
}

export function shuffled<T>(items: readonly T[], random: Random): T[] {
  const left = [...items];
  const order: T[] = [];
  while (left.length > 0) order.push(...left.splice(random.int(left.length), 1));
  return order;
}
