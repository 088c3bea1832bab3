import { test } from "vitest";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { tableOf } from "../../../src/drivers/memory-store.ts";
import { quorum } from "../../../src/drivers/quorum/driver.ts";
import { expectBulkCancellationLeavesNothing } from "../../support/bulk-cancellation.ts";

test("2,000 waits that end at once cost no other client a lock and leave no entry: a majority of memories", async () => {
  const stores = Array.from({ length: 3 }, () => memoryStore());
  await expectBulkCancellationLeavesNothing({
    createDriver: () => quorum(stores.map((store) => memory({ store }))),
    countEntries: async (key) => Math.max(...stores.map((store) => tableOf(store).queues.get(key)?.entries.size ?? 0)),
  });
}, 90_000);
