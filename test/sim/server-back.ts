/** The real server and its driver, over streams. */

import { server as serverDriver } from "../../src/drivers/server/driver.ts";
import type { Back, Means } from "./back.ts";
import type { Machine } from "./machine.ts";
import { dialer } from "./pipe.ts";
import { ServerHost } from "./server-host.ts";
import { revokeOne, tableLeftOvers } from "./table-view.ts";

/** How long a server that has ended stays away at most. */
const DOWN_MS = 2_000;
const PROBES_MS = 60_000;
/** As long as a client that has not come back, or a lease of before, can keep anything. */
const SETTLE_MS = 130_000;

export function serverBack({ world, plan, watch, network, random }: Means): Back {
  const local = plan.store === "unix";
  const machines = new Map<string, Machine>();
  const host = new ServerHost(world, {
    drift: plan.drift,
    sessionMs: plan.sessionMs,
    stateless: plan.stateless,
    local,
    probe(name) {
      const machine = machines.get(name);
      if (machine === undefined) return "unknown";
      if (machine.state === "dead") return "gone";
      return machine.state === "running" ? "running" : "stopped";
    },
  });
  void host.start();

  return {
    driverFor(machine) {
      const name = String(machines.size + 1);
      if (local) machines.set(name, machine);
      const ownRandom = random.fork();
      const dial = dialer(machine, network, host, name);
      return serverDriver({ dial, clock: machine.clock, random: () => ownRandom.next() });
    },
    mishap(kind, ms) {
      const downMs = random.next() * random.pick([1, 100, DOWN_MS]);
      if (kind === "crash" || kind === "power") host.crash(downMs, kind === "power");
      else if (kind === "restart") void host.stop(downMs);
      else if (kind === "storePause") host.machine.pause(Math.min(ms, 500));
      else if (kind === "wall" && random.chance(0.3) && !plan.stateless)
        host.machine.stepWall(random.pick([-1, 1]) * ms);
      else return false;
      return true;
    },
    died(machine) {
      // over a network its kernel says so, or, if that has died as well, the probes of TCP find out
      if (local || random.chance(0.5)) host.clientDied(machine);
      else world.after(PROBES_MS, () => host.clientDied(machine));
    },
    reset: (machine) => host.reset(machine),
    revoke() {
      const table = host.kept?.keeper.table;
      if (table === undefined) return [];
      const revoked = revokeOne(table, random, host.machine.clock, watch);
      host.hub?.settle();
      return revoked;
    },
    table: () => host.kept?.keeper.table ?? null,
    settleMs: Math.max(SETTLE_MS, 4 * plan.ttlMs),
    leftOvers() {
      if (host.kept === null) return "no server, since none is running";
      const { keeper, sessions } = host.kept;
      const left = [tableLeftOvers(keeper.table, host.machine.clock, SETTLE_MS)];
      if (sessions.all.size > 0) left.push(`${sessions.all.size} sessions`);
      return left.filter((text) => text !== "").join(", ");
    },
  };
}
