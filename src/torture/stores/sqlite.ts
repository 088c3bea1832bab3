/** A SQLite file: there is no server to harm, but the disk of its users. */

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import {
  createPowerLossDisk,
  losePower,
  markSynced,
  powerLossUnavailableReason,
  removePowerLossDisk,
} from "../disk/power-loss.ts";
import type { StartedStore, StoreSetup } from "./started-store.ts";

export async function startSqlite({ directory, faults }: StoreSetup): Promise<StartedStore> {
  const folder = join(directory, "disk");
  mkdirSync(folder, { mode: 0o700 });
  const isWanted = faults.includes("power-loss") && powerLossUnavailableReason() === null;
  const disk = isWanted ? createPowerLossDisk(folder) : null;
  const store = { name: "SQLite", url: `sqlite:${join(folder, "locks.db")}` };
  if (disk === null) return { ...store, faults: [], inject: async () => null, close: async () => undefined };
  return {
    ...store,
    faults: ["power-loss"],
    isOnUsersMachine: true,
    admitUsers() {
      // what others have written before
      markSynced(disk);
      return disk.environment;
    },
    async inject(_, random, users) {
      await losePower(disk, users, random);
      return async () => undefined;
    },
    close: async () => removePowerLossDisk(disk),
  };
}
