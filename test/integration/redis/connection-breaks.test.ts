/** Redis loses a lock while its client is cut off (test/support/stores/connection-breaks.ts). */

import { Redis } from "ioredis";
import { createClient } from "redis";
import type { RedisClient } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { BreakableStore } from "../../support/stores/connection-breaks.ts";
import { testConnectionBreaks } from "../../support/stores/connection-breaks.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import { createRedisFixture } from "../../support/stores/redis-fixture.ts";
import { tcpProxy } from "../../support/tcp-proxy.ts";

const ioredis = (port: number): RedisClient =>
  new Redis(port, "127.0.0.1", { retryStrategy: () => 20 }).on("error", () => undefined);
const nodeRedis = (port: number): RedisClient =>
  createClient({ socket: { port, host: "127.0.0.1", reconnectStrategy: 20 } }).on("error", () => undefined);

withRedis((server) => {
  for (const [library, connectRedis] of [
    ["ioredis", ioredis],
    ["node-redis", nodeRedis],
  ] as const) {
    testConnectionBreaks(`Redis by ${library}`, async (): Promise<BreakableStore> => {
      const fixture = createRedisFixture(server().port);
      const { prefix } = fixture;
      const proxy = await tcpProxy({ host: "127.0.0.1", port: server().port });
      const { port } = proxy.address as { readonly port: number };
      return {
        driverBehindProxies: () => redis(() => connectRedis(port), { prefix }),
        directDriver: () => redis(() => ioredis(server().port), { prefix }),
        proxies: [proxy],
        loseClaims: async () => fixture.admin.del(await fixture.keys()),
        async close() {
          await fixture.close();
          await proxy.close();
        },
      };
    });
  }
});
