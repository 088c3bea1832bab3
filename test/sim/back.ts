/** What stands behind the clients: a table over calls, or the real server over streams. */

import type { Table } from "../../src/core/table.ts";
import type { Driver } from "../../src/spi/driver.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import type { Machine } from "./machine.ts";
import type { Network } from "./network.ts";
import type { Mishap, Plan } from "./plan.ts";
import type { Watch } from "./watch.ts";
import type { World } from "./world.ts";

/** What a back is made of. */
export interface Means {
  readonly world: World;
  readonly plan: Plan;
  readonly watch: Watch;
  readonly network: Network;
  readonly random: SeededRandom;
}

export interface Back {
  driverFor(machine: Machine): Driver;
  /** True if this mishap was the store's. */
  mishap(kind: Mishap, ms: number): boolean;
  /** A client's process has died. */
  died(machine: Machine): void;
  /** A client's connections break. */
  reset(machine: Machine): void;
  /** An operator asks a holder to go; gives "key token" of all it may have handed on. */
  revoke(): readonly string[];
  /** The lock table as it stands in memory; null: nobody serves one now. */
  table(): Table | null;
  /** After this time without clients nothing is kept. */
  readonly settleMs: number;
  /** What is kept then; empty: nothing. */
  leftOvers(): string;
}
