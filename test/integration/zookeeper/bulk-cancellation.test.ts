import { test } from "vitest";
import { expectBulkCancellationLeavesNothing } from "../../support/bulk-cancellation.ts";
import { zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";

const fixture = zookeeperFixture({}, { root: "/crowd" });

test("2,000 waits that end at once cost no other client a lock and leave no node: ZooKeeper", async () => {
  await expectBulkCancellationLeavesNothing({
    createDriver: () => fixture.createDriver(),
    countEntries: async (key) => (await fixture.observer.children(`/crowd/${key}`)).names.length,
  });
}, 90_000);
