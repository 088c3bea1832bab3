import { test } from "vitest";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { tableOf } from "../../../src/drivers/memory-store.ts";
import { expectBulkCancellationLeavesNothing } from "../../support/bulk-cancellation.ts";

test("2,000 waits that end at once cost no other client a lock and leave no entry: memory", async () => {
  const store = memoryStore();
  await expectBulkCancellationLeavesNothing({
    createDriver: () => memory({ store }),
    countEntries: async (key) => tableOf(store).queues.get(key)?.entries.size ?? 0,
  });
}, 90_000);
