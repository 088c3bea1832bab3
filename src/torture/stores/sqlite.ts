/** A SQLite file: there is no server to harm. */

import { join } from "node:path";
import type { StartedStore } from "./started-store.ts";

export async function startSqlite(directory: string): Promise<StartedStore> {
  return {
    name: "SQLite",
    url: `sqlite:${join(directory, "locks.db")}`,
    inject: async () => null,
    close: async () => undefined,
  };
}
