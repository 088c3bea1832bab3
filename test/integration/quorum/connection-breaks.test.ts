/** A majority of members loses a lock while its client is cut off from them (test/support/stores/connection-breaks.ts). */

import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, beforeAll } from "vitest";
import { quorum } from "../../../src/drivers/quorum/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import type { BreakableStore } from "../../support/stores/connection-breaks.ts";
import { testConnectionBreaks } from "../../support/stores/connection-breaks.ts";
import type { RedisServer } from "../../support/stores/redis.ts";
import { startRedis } from "../../support/stores/redis.ts";

const servers: RedisServer[] = [];
beforeAll(async () => {
  for (let index = 0; index < 3; index++) servers.push(await startRedis());
}, 180_000);
afterAll(async () => {
  for (const server of servers) await server.stop();
});

async function openMajority(lostCount: number): Promise<BreakableStore> {
  const prefix = randomUUID();
  const proxies = await Promise.all(servers.map(({ port }) => tcpProxy({ host: "127.0.0.1", port })));
  const toDriver = (ports: readonly number[]): Driver =>
    quorum(
      ports.map((port) =>
        redis(() => new Redis(port, "127.0.0.1", { retryStrategy: () => 20 }).on("error", () => undefined), { prefix }),
      ),
    );
  return {
    driverBehindProxies: () => toDriver(proxies.map(({ address }) => (address as { readonly port: number }).port)),
    directDriver: () => toDriver(servers.map(({ port }) => port)),
    proxies: proxies.slice(0, lostCount),
    async loseClaims() {
      for (const { port } of servers.slice(0, lostCount)) {
        const admin = new Redis(port, "127.0.0.1");
        await admin.flushall();
        await admin.quit();
      }
    },
    close: () => Promise.all(proxies.map((proxy) => proxy.close())),
  };
}

testConnectionBreaks("two of three members", () => openMajority(2));
