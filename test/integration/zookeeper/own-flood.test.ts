/** A process whose own requests flood ZooKeeper (test/support/own-flood.ts). */

import { test } from "vitest";
import { expectOwnFloodHarmless } from "../../support/own-flood.ts";
import { zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";

/** The shortest that the test server grants. */
const SESSION_MS = 4_000;
const fixture = zookeeperFixture();

test("its locks survive, and nothing is left", { timeout: 120_000 }, async () => {
  await expectOwnFloodHarmless({
    ttlMs: SESSION_MS,
    createDriver: () => fixture.createDriver({ sessionMs: SESSION_MS }),
    async countCalls() {
      const [, count] = /^zk_packets_received\s+(\d+)/m.exec(await fixture.server.runCommand("mntr")) ?? [];
      return Number(count);
    },
  });
});
