/** A majority of guarded stores: a member that comes back empty never completes a second majority. */

import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { quorum } from "../../../src/drivers/quorum/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import type { TcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import type { RedisServer } from "../../support/stores/redis.ts";
import { startRedis } from "../../support/stores/redis.ts";
import { markLongInUse } from "../../support/stores/redis-fixture.ts";

/** A restart has to fit in before a lease ends. */
const TTL_MS = 6_000;
const servers: RedisServer[] = [];
let proxy: TcpProxy;
beforeAll(async () => {
  for (let index = 0; index < 3; index++) servers.push(await startRedis());
  proxy = await tcpProxy({ host: "127.0.0.1", port: (servers[2] as RedisServer).port });
}, 180_000);
afterAll(async () => {
  await proxy.close();
  for (const server of servers) await server.stop();
});

test("a holder with a bare majority keeps its lock when one of its members is restarted empty, and no other client gets it", {
  timeout: 40_000,
}, async () => {
  const prefix = randomUUID();
  const ports = servers.map(({ port }) => port);
  const client = (memberPorts: readonly number[]): Locks => {
    const members = memberPorts.map((port) =>
      redis(() => new Redis({ port, host: "127.0.0.1", retryStrategy: () => 50 }), {
        prefix,
        guardDataLoss: { maxTtlMs: TTL_MS },
        warn: () => undefined,
      }),
    );
    return createLocks(quorum(members, { callTimeoutMs: 500 }), { ttl: TTL_MS, order: "strict" });
  };
  for (const port of ports) {
    const admin = new Redis(port, "127.0.0.1");
    await markLongInUse(admin, prefix);
    admin.disconnect();
  }
  await using holder = client([...ports.slice(0, 2), (proxy.address as { port: number }).port]);
  await using contender = client(ports);
  await holder.using("warm", () => undefined);
  await contender.using("warm", () => undefined);
  // the third member is unreachable for the holder alone
  proxy.refuseConnections(true);
  proxy.disconnect();
  const lock = await holder.acquire("key");
  await servers[1]?.restart();
  let isGranted = false;
  const next = contender.acquire("key", { wait: "30s" }).then((granted) => {
    isGranted = true;
    return granted;
  });
  // past the holder's next renewals, and past the restarted member's pause
  await delay(TTL_MS * 1.5);
  expect(isGranted).toBe(false);
  expect(lock.signal.aborted).toBe(false);
  expect(await lock.release()).toBe(true);
  const after = await next;
  expect(after.token).toBeGreaterThan(lock.token);
  await after.release();
  await until(async () => (await contender.list("key")).length === 0, { within: 5_000, what: "the end" });
});
