/** A process whose own requests flood Redis (test/support/own-flood.ts). */

import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { expectOwnFloodHarmless } from "../../support/own-flood.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";

withRedis((server) => {
  test("its locks survive, and nothing is left", { timeout: 120_000 }, async () => {
    const prefix = randomUUID();
    await expectOwnFloodHarmless({
      ttlMs: 3_000,
      createDriver: () => redis(() => new Redis(server().port, "127.0.0.1"), { prefix }),
    });
  });
});
