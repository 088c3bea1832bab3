/** What candidates and the observer in the test have in common: the name of their election, and its store. */

import { Redis } from "ioredis";
import { createDocumentDriver } from "../../../src/drivers/document/driver.ts";
import { quorum } from "../../../src/drivers/quorum/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Locks } from "../../../src/index.ts";
import { connect, createLocks } from "../../../src/index.ts";
import { systemClock } from "../../../src/util/clock.ts";
import { keepProcessAlive } from "../../../src/util/timeout.ts";
import type { StoreAddress } from "../stores/document-stores.ts";
import { createStore } from "../stores/document-stores.ts";

export const ELECTION = "scheduler";

/** Of documents, whose leases users may not have as short as these candidates. */
const MIN_TTL_MS = 1_000;

/**
 * The store of a url; or "quorum:url,url,url": the majority of these Redis servers; or the JSON of the address of a store with a
 * conditional write.
 */
export async function connectStore(url: string): Promise<Locks> {
  if (url.startsWith("{")) {
    const store = createStore(JSON.parse(url) as StoreAddress);
    const driver = createDocumentDriver(store, { documents: 2, pollMs: 100 }, MIN_TTL_MS);
    // connections of the store do not keep the process alive
    return createLocks({ ...driver, open: (events) => keepProcessAlive(systemClock, () => driver.open(events)) });
  }
  const [, members] = /^quorum:(.*)$/.exec(url) ?? [];
  // a machine that starts three stores and fifteen processes takes its time
  if (members === undefined) return connect(url, { connectTimeout: "30s" });
  return createLocks(quorum(members.split(",").map((member) => redis(() => new Redis(member)))));
}
