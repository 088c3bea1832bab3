/** The simulated network between machines: messages are delayed, lost, repeated, and overtake each other. */

import type { SeededRandom } from "../support/seeded-random.ts";
import type { EventQueue } from "./event-queue.ts";
import type { SimulatedMachine } from "./simulated-machine.ts";

/** How bad the network is. Chances from 0 to 1, times in true milliseconds. */
export interface NetworkConditions {
  readonly lost: number;
  readonly repeated: number;
  /** How often a message is slow, and how slow at most. */
  readonly slow: number;
  readonly slowMs: number;
  readonly usualMs: number;
}

export const GOOD_CONDITIONS: NetworkConditions = { lost: 0, repeated: 0, slow: 0, slowMs: 0, usualMs: 2 };

/** The fate of one call. */
export interface Delivery {
  /** When the request arrives, once or twice; none: it is lost. */
  readonly arrivals: readonly number[];
  /** The delay of the last reply; null: it is lost. */
  readonly replyMs: number | null;
  /** The caller is notified of a loss (a connection error) after that time; null: never. */
  readonly failsMs: number | null;
}

export class SimulatedNetwork {
  readonly events: EventQueue;
  readonly #random: SeededRandom;
  conditions: NetworkConditions;
  /** Machines that are unreachable at present. */
  readonly partitioned: Set<SimulatedMachine> = new Set();

  constructor(events: EventQueue, weather: NetworkConditions) {
    this.events = events;
    this.conditions = weather;
    this.#random = events.random.fork();
  }

  delay(): number {
    const { slow, slowMs, usualMs } = this.conditions;
    if (slow > 0 && this.#random.chance(slow)) return this.#random.next() * slowMs;
    return 0.05 + this.#random.next() * usualMs;
  }

  isLost(machine: SimulatedMachine): boolean {
    return this.partitioned.has(machine) || this.#random.chance(this.conditions.lost);
  }

  /** @param repeats may the request arrive twice? */
  planDelivery(machine: SimulatedMachine, repeats: boolean): Delivery {
    const failsMs = this.#random.chance(0.5) ? this.delay() * 2 : null;
    if (this.isLost(machine)) return { arrivals: [], replyMs: null, failsMs };
    const arrivals = [this.delay()];
    if (repeats && this.#random.chance(this.conditions.repeated)) arrivals.push(this.delay());
    return { arrivals: arrivals.sort((a, b) => a - b), replyMs: this.isLost(machine) ? null : this.delay(), failsMs };
  }

  /** How often a push arrives. */
  pushCopies(machine: SimulatedMachine): number {
    if (this.isLost(machine)) return 0;
    return this.#random.chance(this.conditions.repeated) ? 2 : 1;
  }
}
