/** core/table on one machine, reached by calls. */

import type { Back, Means } from "./back.ts";
import { Machine } from "./machine.ts";
import { RpcStore, rpcDriver } from "./rpc-store.ts";
import { revokeOne, tableLeftOvers } from "./table-view.ts";

export function rpcBack({ world, plan, watch, network, random }: Means): Back {
  // a call under way is given up on after a sixth of its lease, of which there are some twice as long; then one is sent
  watch.nudgeBoundMs = (2 * plan.ttlMs) / 6 + 1;
  const manners = {
    timer: random.chance(0.5),
    looks: random.chance(0.5),
    nudges: random.pick([0, 0.3, 1]),
    manyKeys: random.chance(0.75),
    leavesOut: world.parts?.pick([0, 0, 0.2]) ?? 0,
    parts: world.parts?.pick([1, 3]) ?? 1,
  };
  const machine = new Machine(world, "store", plan.drift);
  const store = new RpcStore(machine, manners, watch);
  world.note("MANNERS", JSON.stringify(manners));
  return {
    driverFor: (client) => rpcDriver(client, store, network),
    mishap(kind, ms) {
      if (kind === "storePause") machine.pause(Math.min(ms, plan.ttlMs * 0.5));
      else if (kind === "wall" && random.chance(0.3)) machine.stepWall(random.pick([-1, 1]) * ms);
      else return false;
      return true;
    },
    died: () => {},
    reset: () => {},
    revoke() {
      const revoked = revokeOne(store.table, random, machine.clock, watch);
      store.passOn();
      return revoked;
    },
    table: () => store.table,
    settleMs: 4 * plan.ttlMs,
    leftOvers: () => tableLeftOvers(store.table, machine.clock, 4 * plan.ttlMs),
  };
}
