import { Redis } from "ioredis";
import { test } from "vitest";
import { redis } from "../../src/drivers/redis/driver.ts";
import { crowdEnds } from "../support/crowd.ts";
import { redisView } from "../support/inspect-redis.ts";
import { withRedis } from "../support/redis-store.ts";

withRedis((server, admin) => {
  test("2,000 waits that end at once cost nobody a lock and leave no place: Redis", async () => {
    await crowdEnds({
      driver: () => redis(() => new Redis(server().port, "127.0.0.1"), { prefix: "crowd" }),
      placesOn: async (key) => (await redisView(admin(), "crowd")).places.filter((place) => place.key === key).length,
    });
  }, 90_000);
});
