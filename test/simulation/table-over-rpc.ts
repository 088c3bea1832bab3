/** The lock table on one machine, reached by calls. */

import { createRpcDriver, RpcStore } from "./rpc-store.ts";
import { SimulatedMachine } from "./simulated-machine.ts";
import type { StoreDependencies, StoreUnderTest } from "./store-under-test.ts";
import { findTableLeftovers, revokeRandom } from "./table-checks.ts";

export function createTableOverRpc({ events, scenario, checker, network, random }: StoreDependencies): StoreUnderTest {
  // a call under way is given up on after a sixth of its lease, of which there are some twice as long; then one is sent
  checker.recheckBoundMs = (2 * scenario.ttlMs) / 6 + 1;
  const behavior = {
    hasTimer: random.chance(0.5),
    renewalsOnlyLook: random.chance(0.5),
    recheckChance: random.pick([0, 0.3, 1]),
    manyKeys: random.chance(0.75),
    omissionChance: events.storePartsRandom?.pick([0, 0, 0.2]) ?? 0,
    parts: events.storePartsRandom?.pick([1, 3]) ?? 1,
    recall: scenario.recall,
    recallLossChance: events.recallRandom?.pick([0, 0, 0.1, 0.5, 1]) ?? 0,
  };
  const machine = new SimulatedMachine(events, "store", scenario.drift);
  const store = new RpcStore(machine, behavior, checker);
  events.note("MANNERS", JSON.stringify(behavior));
  return {
    createDriver: (client) => createRpcDriver(client, store, network),
    injectFault(kind, ms) {
      if (kind === "storePause") machine.pause(Math.min(ms, scenario.ttlMs * 0.5));
      else if (kind === "wall" && random.chance(0.3)) machine.stepWallClock(random.pick([-1, 1]) * ms);
      else return false;
      return true;
    },
    clientKilled: () => {},
    reset: () => {},
    revoke() {
      const revoked = revokeRandom(store.table, random, machine.clock, checker);
      store.sendNotifications();
      return revoked;
    },
    table: () => store.table,
    settleMs: 4 * scenario.ttlMs,
    findLeftovers: () => findTableLeftovers(store.table, machine.clock, 4 * scenario.ttlMs),
  };
}
