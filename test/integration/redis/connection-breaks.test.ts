/** Redis loses a lock while its client is cut off (test/support/stores/connection-breaks.ts). */

import { randomUUID } from "node:crypto";
import { Cluster, Redis } from "ioredis";
import { createClient, createCluster } from "redis";
import { afterAll, beforeAll, describe, onTestFinished, test } from "vitest";
import type { RedisClient } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { createLocks } from "../../../src/index.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { cleanUpAfterEach } from "../../support/server-fixture.ts";
import type { BreakableStore } from "../../support/stores/connection-breaks.ts";
import { testConnectionBreaks } from "../../support/stores/connection-breaks.ts";
import type { RedisCluster } from "../../support/stores/redis-cluster.ts";
import { startRedisCluster } from "../../support/stores/redis-cluster.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import { createRedisFixture } from "../../support/stores/redis-fixture.ts";

type Endpoint = { readonly host: string; readonly port: number };
const localhost = (port: number): Endpoint => ({ host: "127.0.0.1", port });

const ioredis = (port: number): RedisClient =>
  new Redis(port, "127.0.0.1", { retryStrategy: () => 20 }).on("error", () => undefined);
const nodeRedis = (port: number): RedisClient =>
  createClient({ socket: { port, host: "127.0.0.1", reconnectStrategy: 20 } }).on("error", () => undefined);

cleanUpAfterEach();

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

describe("a Cluster", () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await startRedisCluster(3, false);
  }, 180_000);
  afterAll(() => cluster.stop());

  testConnectionBreaks("Redis Cluster by ioredis", async (): Promise<BreakableStore> => {
    const prefix = randomUUID();
    const proxies = await Promise.all(cluster.ports.map((port) => tcpProxy(localhost(port))));
    const natMap = Object.fromEntries(
      cluster.ports.map((port, index) => [`127.0.0.1:${port}`, proxies[index]?.address as Endpoint]),
    );
    return {
      driverBehindProxies: () =>
        redis(
          () =>
            new Cluster(Object.values(natMap), { natMap, clusterRetryStrategy: () => 20 }).on("error", () => undefined),
          { prefix },
        ),
      directDriver: () => redis(() => new Cluster(cluster.ports.map(localhost)), { prefix }),
      proxies,
      loseClaims: () => Promise.all(cluster.admin.map((node) => node.flushall())),
      close: () => Promise.all(proxies.map((proxy) => proxy.close())),
    };
  });

  const CLUSTER_CLIENTS: Readonly<Record<string, (natMap: Readonly<Record<string, Endpoint>>) => RedisClient>> = {
    ioredis: (natMap) => new Cluster(Object.values(natMap), { natMap, clusterRetryStrategy: () => 20 }),
    "node-redis": (natMap) =>
      createCluster({ rootNodes: Object.values(natMap).map((socket) => ({ socket })), nodeAddressMap: natMap }),
  };

  test.each(Object.entries(CLUSTER_CLIENTS))(
    "Redis Cluster by %s: a half-open connection to one node is replaced",
    { timeout: 30_000 },
    async (_, createRedis) => {
      const proxies = await Promise.all(cluster.ports.map((port) => tcpProxy(localhost(port))));
      const natMap = Object.fromEntries(
        cluster.ports.map((port, index) => [`127.0.0.1:${port}`, proxies[index]?.address as Endpoint]),
      );
      const options = { prefix: randomUUID(), commandTimeoutMs: 500, warn: () => undefined };
      const locks = createLocks(redis(() => createRedis(natMap), options));
      onTestFinished(async () => {
        await locks.close();
        await Promise.all(proxies.map((proxy) => proxy.close()));
      });
      const keys = Array.from({ length: 20 }, (_, index) => `key ${index}`);
      const lockAll = (): Promise<unknown> =>
        Promise.all(keys.map((key) => locks.using(key, { wait: "5s" }, () => undefined)));
      await lockAll();
      proxies[0]?.silence();
      await lockAll();
    },
  );
});
