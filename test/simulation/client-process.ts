/** One life of one client: a process on a machine, with the real client in it. */

import { Client } from "../../src/client/client.ts";
import type { ActiveClaim } from "../../src/client/engine.ts";
import type { Locks } from "../../src/client/locks.ts";
import { bindLocks } from "../../src/client/locks.ts";
import type { LocksOptions } from "../../src/client/options.ts";
import { parseClientOptions } from "../../src/client/options.ts";
import type { Driver } from "../../src/spi/driver.ts";
import type { Scenario } from "./scenario.ts";
import type { SimulatedMachine } from "./simulated-machine.ts";

export class ClientProcess {
  readonly machine: SimulatedMachine;
  readonly client: Client;
  readonly locks: Locks;
  /** Workloads in it. */
  activeUsers = 0;
  /** It is closing, or closed. */
  isClosing = false;

  readonly #checksTimers: boolean;

  constructor(machine: SimulatedMachine, driver: Driver, scenario: Scenario) {
    this.machine = machine;
    this.#checksTimers = scenario.store === "table";
    const options: LocksOptions = {
      clock: machine.clock,
      ttl: scenario.ttlMs,
      label: machine.name,
      order: scenario.handoffs === 1 ? "strict" : "process",
      renew: scenario.renew,
      cache: Math.round(scenario.cacheMs),
      ...(scenario.maxHoldMs !== null && { maxHold: scenario.maxHoldMs }),
    };
    const random = machine.events.random.fork();
    const { handoffs: holders, handoffMs: ms } = scenario;
    const settings = { ...parseClientOptions(options), handoffLimits: { holders, ms } };
    this.client = new Client(driver, settings, () => random.next());
    this.locks = bindLocks(this.client);
  }

  get isAlive(): boolean {
    return this.machine.state !== "dead" && !this.isClosing;
  }

  /** The locks that it keeps and could use at once, by what its clocks have shown it so far. */
  readonly listUsableLocks = (): readonly ActiveClaim[] => {
    const { context } = this.client;
    if (context === null || this.machine.state !== "running") return [];
    // it compares its clocks before it uses one
    const sleptMs = this.machine.clock.uptime() - this.machine.now - context.engine.suspendedMs;
    if (sleptMs > 1) return [];
    const { now } = this.machine;
    return context.cachedLocks
      .listIdle()
      .map(({ activeClaim }) => activeClaim)
      .filter((claim) => claim.isHeld(now) && !claim.isWanted && claim.remainingMs(now) > 0.45 * claim.settings.ttlMs);
  };

  /** The rest in its maps; empty: nothing. */
  findLeftovers(): string {
    const context = this.client.context;
    if (context === null) return "";
    const leftovers: string[] = [];
    if (context.engine.size > 0) leftovers.push(`${context.engine.size} claims or releases`);
    if (context.queues.size > 0) leftovers.push(`${context.queues.size} queues`);
    // a connection's timer may be set for a ping that is no longer needed
    if (this.#checksTimers && this.machine.armedTimers > 0) leftovers.push(`${this.machine.armedTimers} timers`);
    return leftovers.join(", ");
  }
}
