/** One life of one client: a process on a machine, with the real client in it. */

import { Client } from "../../src/client/client.ts";
import type { Locks } from "../../src/client/locks.ts";
import { locksOf } from "../../src/client/locks.ts";
import type { LocksOptions } from "../../src/client/options.ts";
import { settingsOf } from "../../src/client/options.ts";
import type { Driver } from "../../src/spi/driver.ts";
import type { Machine } from "./machine.ts";
import type { Plan } from "./plan.ts";

export class Site {
  readonly machine: Machine;
  readonly client: Client;
  readonly locks: Locks;
  /** Actors at work in it. */
  busy = 0;
  /** It is being closed, or was. */
  closing = false;

  readonly #timersCount: boolean;

  constructor(machine: Machine, driver: Driver, plan: Plan) {
    this.machine = machine;
    this.#timersCount = plan.store === "table";
    const options: LocksOptions = {
      clock: machine.clock,
      ttl: plan.ttlMs,
      label: machine.name,
      handoffs: plan.handoffs,
      handoffMs: plan.handoffMs,
      renew: plan.renew,
      ...(plan.maxHoldMs !== null && { maxHold: plan.maxHoldMs }),
    };
    const random = machine.world.random.fork();
    this.client = new Client(driver, settingsOf(options), () => random.next());
    this.locks = locksOf(this.client);
  }

  get isAlive(): boolean {
    return this.machine.state !== "dead" && !this.closing;
  }

  /** What is left in its maps; empty: nothing. */
  leftOvers(): string {
    const host = this.client.opened?.host;
    if (host === undefined) return "";
    const left: string[] = [];
    if (host.engine.size > 0) left.push(`${host.engine.size} claims or releases`);
    if (host.lanes.size > 0) left.push(`${host.lanes.size} lanes`);
    // a connection's timer may be set for a ping that turns out not to be needed
    if (this.#timersCount && this.machine.armed > 0) left.push(`${this.machine.armed} timers`);
    return left.join(", ");
  }
}
