/** The real server and its driver, over streams. */

import { lockServer } from "../../src/drivers/server/driver.ts";
import { delegate } from "../../src/testing/delegate.ts";
import { withTraits } from "../support/driver-events.ts";
import { ServerProcess } from "./server-process.ts";
import { createConnector } from "./simulated-connection.ts";
import type { SimulatedMachine } from "./simulated-machine.ts";
import type { StoreDependencies, StoreUnderTest } from "./store-under-test.ts";
import { findTableLeftovers, revokeRandom } from "./table-checks.ts";

/** The longest time between a server's end and its next start. */
const DOWN_MS = 2_000;
const PROBE_TIME_MS = 60_000;
/** As long as an absent client, or an earlier lease, can keep anything. */
const SETTLE_MS = 130_000;

export function createServerStore({ events, scenario, checker, network, random }: StoreDependencies): StoreUnderTest {
  const isLocal = scenario.store === "unix";
  const machines = new Map<string, SimulatedMachine>();
  const host = new ServerProcess(events, {
    drift: scenario.drift,
    sessionMs: scenario.sessionMs,
    isStateless: scenario.stateless,
    isLocal,
    probe(name) {
      const machine = machines.get(name);
      if (machine === undefined) return "unknown";
      if (machine.state === "dead") return "gone";
      return machine.state === "running" ? "running" : "stopped";
    },
  });
  void host.start();

  return {
    createDriver(machine) {
      const name = String(machines.size + 1);
      if (isLocal) machines.set(name, machine);
      const ownRandom = random.fork();
      const connector = createConnector(machine, network, host, name);
      const driver = lockServer({ connector, clock: machine.clock, random: () => ownRandom.next() });
      // seeds of earlier revisions play as before
      return events.recallRandom === null ? delegate(driver, withTraits(driver, { recall: false })) : driver;
    },
    injectFault(kind, ms) {
      const downMs = random.next() * random.pick([1, 100, DOWN_MS]);
      if (kind === "crash" || kind === "power") host.crash(downMs, kind === "power");
      else if (kind === "restart") void host.stop(downMs);
      else if (kind === "storePause") host.machine.pause(Math.min(ms, 500));
      else if (kind === "wall" && random.chance(0.3) && !scenario.stateless)
        host.machine.stepWallClock(random.pick([-1, 1]) * ms);
      else return false;
      return true;
    },
    clientKilled(machine) {
      // over a network its kernel says so, or, if that has died as well, the probes of TCP find out
      if (isLocal || random.chance(0.5)) host.clientDied(machine);
      else events.after(PROBE_TIME_MS, () => host.clientDied(machine));
    },
    reset: (machine) => host.reset(machine),
    revoke() {
      const { table } = host;
      if (table === null) return [];
      const revoked = revokeRandom(table, random, host.machine.clock, checker);
      host.service?.endBatch();
      return revoked;
    },
    table: () => host.table,
    settleMs: Math.max(SETTLE_MS, 4 * scenario.ttlMs),
    findLeftovers() {
      const { parts, table } = host;
      if (parts === null || table === null) return "no server, since none is running";
      const { sessions } = parts;
      const leftovers = [findTableLeftovers(table, host.machine.clock, SETTLE_MS)];
      if (sessions.byId.size > 0) leftovers.push(`${sessions.byId.size} sessions`);
      return leftovers.filter((text) => text !== "").join(", ");
    },
  };
}
