/** An etcd of the bench's own, as it comes: every write is synced to the disk; and rounds on it. */

import { startEtcd } from "../../test/support/stores/etcd.ts";
import { ETCD3 } from "../implementations/etcd.ts";
import type { BenchStore } from "./bench-store.ts";
import { processCpuMicros } from "./process-cpu.ts";
import type { LoadOptions, StoreKind, StoreRounds } from "./store-rounds.ts";
import { measureOnStore } from "./store-rounds.ts";

export const ETCD: StoreKind = {
  withStore: withBenchEtcd,
  isRival: (name) => name === ETCD3,
  countedCommands: () => undefined,
};

export function measureOnEtcd(names: readonly string[], options: LoadOptions): Promise<StoreRounds> {
  return measureOnStore(ETCD, names, options);
}

async function withBenchEtcd<T>(use: (store: BenchStore) => Promise<T>): Promise<T> {
  // its own defaults
  await using server = await startEtcd({ heartbeatMs: 100, electionMs: 1_000 });
  return await use({
    address: `tcp:${server.address.port}`,
    work: async () => ({ calls: new Map(), cpu: processCpuMicros(server.pid) }),
  });
}
