import { join } from "node:path";
import { expect, test } from "vitest";
import { expectBulkCancellationLeavesNothing } from "../../support/bulk-cancellation.ts";
import { inspectTables, takeUsedTables } from "../../support/setup/table-inspection.ts";
import { createServerStore } from "../../support/stores/server-store.ts";

test.each([
  ["a Unix socket", (folder: string): string => `holdfast+unix:${join(folder, "socket")}`],
  ["TCP", (): string => "holdfast://127.0.0.1:0"],
])(
  "2,000 waits that end at once take no lock from others and leave no queue entry: the server on %s",
  async (_, listen) => {
    const store = await createServerStore(listen);
    try {
      await expectBulkCancellationLeavesNothing({
        createDriver: () => store.driver() as Exclude<ReturnType<typeof store.driver>, Promise<unknown>>,
        countEntries: async (key) =>
          takeUsedTables().reduce((sum, { queues }) => sum + (queues.get(key)?.entries.size ?? 0), 0),
      });
      expect(await inspectTables()).toEqual([]);
    } finally {
      await store.close?.();
    }
  },
  90_000,
);
