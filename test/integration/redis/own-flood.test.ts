/** A process whose own requests flood Redis (test/support/own-flood.ts). */

import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { expectOwnFloodHarmless } from "../../support/own-flood.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";

withRedis((server, admin) => {
  test("its locks survive, and nothing is left", { timeout: 120_000 }, async () => {
    const prefix = randomUUID();
    await expectOwnFloodHarmless({
      ttlMs: 3_000,
      createDriver: () => redis(() => new Redis(server().port, "127.0.0.1"), { prefix }),
      async countCalls() {
        const stats = await admin().info("commandstats");
        const counts = [...stats.matchAll(/^cmdstat_(?:eval|evalsha|fcall):calls=(\d+)/gm)].map(([, count]) =>
          Number(count),
        );
        return counts.reduce((total, count) => total + count, 0);
      },
    });
  });
});
