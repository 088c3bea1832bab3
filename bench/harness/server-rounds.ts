/** Rounds of implementations that each have a server of their own. */

import type { LoadOptions, StoreKind, StoreRounds } from "./store-rounds.ts";
import { measureOnStore } from "./store-rounds.ts";

/** Commands are not counted. */
export const SERVERS: StoreKind = {
  withStore: (use) => use({ address: "", work: async () => ({ calls: new Map(), cpu: 0 }) }),
  isRival: (name) => name === "live-mutex",
  countedCommands: () => undefined,
};

export function measureOnServers(names: readonly string[], options: LoadOptions): Promise<StoreRounds> {
  return measureOnStore(SERVERS, names, options);
}
