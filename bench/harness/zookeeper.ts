/** A ZooKeeper of the bench's own, as it comes: every write is synced to the disk. */

import { startZooKeeper } from "../../test/support/stores/zookeeper.ts";
import type { BenchStore } from "./bench-store.ts";
import { processCpuMicros } from "./process-cpu.ts";

/** Starts one, gives it to `use` (its address is host:port), and ends it. */
export async function withBenchZooKeeper<T>(use: (store: BenchStore) => Promise<T>): Promise<T> {
  await using server = await startZooKeeper({ isSynced: true });
  return await use({
    address: `${server.address.host}:${server.address.port}`,
    work: async () => ({ calls: new Map(), cpu: processCpuMicros(server.pid) }),
  });
}
