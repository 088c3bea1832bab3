// A claim that the client library keeps, and sends after it was abandoned.

import { Redis } from "ioredis";
import { expect, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import { createRedisFixture } from "../../support/stores/redis-fixture.ts";

withRedis((server) => {
  test("a claim abandoned while the connection is broken is released when the library resends it", async () => {
    const fixture = createRedisFixture(server().port);
    await using proxy = await tcpProxy({ host: "127.0.0.1", port: server().port });
    const { port } = proxy.address as { port: number };
    const client = new Redis({ port, host: "127.0.0.1", retryStrategy: () => 10, maxRetriesPerRequest: null });
    client.on("error", () => undefined);
    try {
      const lockClient = await fixture.open(redis(client, { prefix: fixture.prefix, commandTimeoutMs: 2_500 }));
      const claim = makeClaim("key");
      proxy.toTarget.pause();
      const pendingClaim = lockClient.claim(claim);
      const failure = expect(pendingClaim).rejects.toThrow("no answer within 2500 ms");
      proxy.refuseConnections(true);
      proxy.reset();
      proxy.toTarget.resume();
      await until(() => client.status !== "ready", { within: 2_000, what: "the break" });
      // the caller has given up, and cannot be notified
      await expect(lockClient.driver.release([{ claim, hasUnansweredClaim: true }])).rejects.toThrow("not connected");
      await failure;
      await fixture.admin.config("RESETSTAT");
      proxy.refuseConnections(false);
      const calls = async (): Promise<number> =>
        Number(/cmdstat_evalsha:calls=(\d+)/.exec(await fixture.admin.info("commandstats"))?.[1] ?? 0);
      await until(async () => (await calls()) >= 1, { within: 5_000, what: "the call that comes late" });
      const { key } = claim.locks[0];
      const isFree = async (): Promise<boolean> => (await fixture.admin.hexists(fixture.hashOf(key), `k:${key}`)) === 0;
      await until(isFree, { within: 5_000, what: "the key free again" });
      expect((await lockClient.claim(claim)).state).toBe("none");
    } finally {
      await fixture.close();
      client.disconnect();
    }
  });

  test("a claim released and made again before its first call is answered keeps the entry of the second", async () => {
    const fixture = createRedisFixture(server().port);
    await using proxy = await tcpProxy({ host: "127.0.0.1", port: server().port });
    const { port } = proxy.address as { port: number };
    const client = new Redis({ port, host: "127.0.0.1" });
    client.on("error", () => undefined);
    try {
      const lockClient = await fixture.open(redis(client, { prefix: fixture.prefix, commandTimeoutMs: 3_000 }));
      const claim = makeClaim("key");
      proxy.toClient.pause();
      await expect(lockClient.claim(claim)).rejects.toThrow("no answer within 3000 ms");
      // as a majority does when it releases a vote
      const pendingRelease = lockClient.driver.release(toReleases(claim));
      const pendingClaim = lockClient.claim(claim);
      proxy.toClient.resume();
      expect(await pendingRelease).toEqual([true]);
      expect(await pendingClaim).toMatchObject({ state: "held" });
      // all effects of the first answer were sent before this
      expect(await lockClient.renewOnce(claim)).toMatchObject({ state: "held" });
      await lockClient.driver.release(toReleases(claim));
    } finally {
      await fixture.close();
      client.disconnect();
    }
  });
});
