/** Locks on one etcd, by name. */

import type { Lock, LocksOptions } from "../../src/index.ts";
import { parsePort } from "../harness/address.ts";
import type { LockImplementation } from "../harness/closed-loop.ts";

interface EtcdImplementation {
  /** @param address of the etcd */
  open(address: string): Promise<LockImplementation>;
}

export const HOLDFAST = "holdfast, etcd";
export const HOLDFAST_STRICT = "holdfast, etcd, strict order";
export const ETCD3 = "etcd3";
/** One creates a key under a lease, and one deletes it; sent as Holdfast sends its own. */
export const BARE_PAIR = "two bare transactions";
/** The transaction of a release and the event that tells of it, with nothing asked after it. */
export const EVENT_FLOOR = "transaction and watch event";

// loaded only where they are needed: other cases' processes do without them
const loadFloors = (): Promise<typeof import("./etcd-floors.ts")> => import("./etcd-floors.ts");
const loadThirdParty = (): Promise<typeof import("./etcd-third-party.ts")> => import("./etcd-third-party.ts");

export const ETCD_IMPLEMENTATIONS: Readonly<Record<string, EtcdImplementation>> = {
  [HOLDFAST]: { open: (address) => openLocks(address) },
  [HOLDFAST_STRICT]: { open: (address) => openLocks(address, { order: "strict" }) },
  [ETCD3]: { open: async (address) => (await loadThirdParty()).openEtcd3(address) },
  [BARE_PAIR]: { open: async (address) => (await loadFloors()).openBarePair(address) },
  [EVENT_FLOOR]: { open: async (address) => (await loadFloors()).openEventFloor(address) },
};

async function openLocks(address: string, options: LocksOptions = {}): Promise<LockImplementation> {
  const { createLocks } = await import("../../src/index.ts");
  const { etcd } = await import("../../src/drivers/etcd/driver.ts");
  const locks = createLocks(etcd({ servers: [{ host: "127.0.0.1", port: Number(parsePort(address)) }] }), options);
  // connected before anything is measured
  await locks.list();
  return {
    acquire: (key) => locks.acquire(key),
    release: (lock) => (lock as Lock).release(),
    close: () => locks.close(),
  };
}
