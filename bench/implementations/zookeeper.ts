/** Holdfast on ZooKeeper. Curator is measured by a program of its own, see harness/curator.ts. */

import type { Lock, LocksOptions } from "../../src/index.ts";
import type { LockImplementation } from "../harness/closed-loop.ts";
import { CACHED } from "./cached.ts";

interface ZooKeeperImplementation {
  /** @param address of the ZooKeeper, host:port */
  open(address: string): Promise<LockImplementation>;
}

export const HOLDFAST = "holdfast, ZooKeeper";
export const HOLDFAST_STRICT = "holdfast, ZooKeeper, strict order";

export const HOLDFAST_CACHED = "holdfast, ZooKeeper, cached";

export const ZOOKEEPER_IMPLEMENTATIONS: Readonly<Record<string, ZooKeeperImplementation>> = {
  [HOLDFAST]: { open: (address) => openLocks(address) },
  [HOLDFAST_STRICT]: { open: (address) => openLocks(address, { order: "strict" }) },
  [HOLDFAST_CACHED]: { open: (address) => openLocks(address, CACHED) },
};

async function openLocks(address: string, options: LocksOptions = {}): Promise<LockImplementation> {
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
