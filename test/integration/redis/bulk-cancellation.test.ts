import { Redis } from "ioredis";
import { test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { expectBulkCancellationLeavesNothing } from "../../support/bulk-cancellation.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import { readStoreView } from "../../support/stores/redis-inspector.ts";

withRedis((server, admin) => {
  test("2,000 waits that end at once cost no other client a lock and leave no entry: Redis", async () => {
    await expectBulkCancellationLeavesNothing({
      createDriver: () => redis(() => new Redis(server().port, "127.0.0.1"), { prefix: "crowd" }),
      countEntries: async (key) =>
        (await readStoreView(admin(), "crowd")).entries.filter((entry) => entry.key === key).length,
    });
  }, 90_000);
});
