/** Ours on ZooKeeper. Curator takes part by a program of its own, see harness/curator.ts. */

import type { Lock, LocksOptions } from "../../src/index.ts";
import type { Contestant } from "../harness/workload.ts";

interface ZooKeeperEntrant {
  /** @param address of the ZooKeeper, host:port */
  open(address: string): Promise<Contestant>;
}

export const OURS = "holdfast, ZooKeeper";
export const STRICT = "holdfast, ZooKeeper, handoffs 1";

export const ZOOKEEPER_ENTRANTS: Readonly<Record<string, ZooKeeperEntrant>> = {
  [OURS]: { open: (address) => open(address) },
  [STRICT]: { open: (address) => open(address, { handoffs: 1 }) },
};

async function open(address: string, options: LocksOptions = {}): Promise<Contestant> {
  const [host = "", port] = address.split(":");
  // loaded only where they are needed: other cases' processes do without them
  const { createLocks } = await import("../../src/index.ts");
  const { zookeeper } = await import("../../src/drivers/zookeeper/driver.ts");
  const driver = zookeeper({ servers: [{ host, port: Number(port) }] });
  const locks = createLocks(driver, { ...options, ttl: "session" });
  // connected before anything is measured
  await locks.list();
  return {
    acquire: (key) => locks.acquire(key),
    release: (lock) => (lock as Lock).release(),
    close: () => locks.close(),
  };
}
