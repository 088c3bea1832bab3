/** The store behind the clients: a table over calls, or the real server over streams. */

import type { LockTable } from "../../src/lock-table/table.ts";
import type { Driver } from "../../src/spi/driver.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import type { EventQueue } from "./event-queue.ts";
import type { InvariantChecker } from "./invariant-checker.ts";
import type { Fault, Scenario } from "./scenario.ts";
import type { SimulatedMachine } from "./simulated-machine.ts";
import type { SimulatedNetwork } from "./simulated-network.ts";

/** What a back is made of. */
export interface StoreDependencies {
  readonly events: EventQueue;
  readonly scenario: Scenario;
  readonly checker: InvariantChecker;
  readonly network: SimulatedNetwork;
  readonly random: SeededRandom;
}

export interface StoreUnderTest {
  createDriver(machine: SimulatedMachine): Driver;
  /** True if this fault was the store's. */
  injectFault(kind: Fault, ms: number): boolean;
  /** A client's process has crashed. */
  clientKilled(machine: SimulatedMachine): void;
  /** A client's connections break. */
  reset(machine: SimulatedMachine): void;
  /** An operator revokes a holder; returns "key token" of all tokens it may have handed on. */
  revoke(): readonly string[];
  /** The lock table in memory; null: no server runs now. */
  table(): LockTable | null;
  /** After this time without clients nothing is kept. */
  readonly settleMs: number;
  /** What is kept after that time; empty: nothing. */
  findLeftovers(): string;
}
