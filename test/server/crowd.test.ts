import { join } from "node:path";
import { expect, test } from "vitest";
import { crowdEnds } from "../support/crowd.ts";
import { inspectTables, usedTables } from "../support/inspected-tables.ts";
import { serverStore } from "../support/server-store.ts";

test.each([
  ["a Unix socket", (folder: string): string => `unix:${join(folder, "socket")}`],
  ["TCP", (): string => "tcp://127.0.0.1:0"],
])(
  "2,000 waits that end at once cost nobody a lock and leave no place: our server on %s",
  async (_, listen) => {
    const store = await serverStore(listen);
    try {
      await crowdEnds({
        driver: () => store.driver() as Exclude<ReturnType<typeof store.driver>, Promise<unknown>>,
        placesOn: async (key) =>
          usedTables().reduce((sum, { mint }) => sum + (mint.lines.get(key)?.seats.size ?? 0), 0),
      });
      expect(await inspectTables()).toEqual([]);
    } finally {
      await store.close?.();
    }
  },
  90_000,
);
