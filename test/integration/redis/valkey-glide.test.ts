/** valkey-glide, which does not report a broken connection, and the consequences. */

import type { GlideClientConfiguration } from "@valkey/valkey-glide";
import { GlideClient, GlideClusterClient, Logger, ProtocolVersion } from "@valkey/valkey-glide";
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { createLocks } from "../../../src/index.ts";
import type { Claim } from "../../../src/spi/driver.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import { startRedisCluster } from "../../support/stores/redis-cluster.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture, makeClaim } from "../../support/stores/redis-fixture.ts";
import { LEAST_PERMISSIONS } from "../../support/stores/redis-permissions.ts";
import type { TcpProxy } from "../../support/tcp-proxy.ts";
import { tcpProxy } from "../../support/tcp-proxy.ts";
import { until } from "../../support/until.ts";

// it logs every lost connection to the standard output
Logger.setLoggerConfig("off");

const BROKEN_CONNECTION = /connection error/i;
const UNCONFIRMED = /the connection broke while a release was under way/;

interface Clients {
  readonly client: GlideClient;
  readonly subscriber: GlideClient;
}

withRedis((server) => {
  let fixture: RedisFixture;
  beforeEach(() => {
    fixture = createRedisFixture(server().port);
  });
  afterEach(() => fixture.close());

  const glide = async (settings: Partial<GlideClientConfiguration> = {}, port = server().port): Promise<Clients> => {
    const base: GlideClientConfiguration = {
      addresses: [{ host: "127.0.0.1", port }],
      requestTimeout: 8_000,
      connectionBackoff: { numberOfRetries: 3, factor: 20, exponentBase: 2 },
    };
    const client = await GlideClient.createClient({ ...base, ...settings });
    const subscriber = await GlideClient.createClient({ ...base, ...settings, protocol: ProtocolVersion.RESP3 });
    onTestFinished(() => {
      client.close();
      subscriber.close();
    });
    return { client, subscriber };
  };
  const proxied = async (): Promise<{ proxy: TcpProxy; client: Clients }> => {
    const proxy = await tcpProxy({ host: "127.0.0.1", port: server().port });
    onTestFinished(() => proxy.close());
    return { proxy, client: await glide({}, (proxy.address as { port: number }).port) };
  };
  const calls = async (): Promise<number> =>
    Number(/cmdstat_evalsha:calls=(\d+)/.exec(await fixture.admin.info("commandstats"))?.[1] ?? 0);
  const waitForInboxes = (count: number): Promise<unknown> =>
    until(async () => (await fixture.admin.pubsub("CHANNELS", `${fixture.prefix}:3:inbox:*`)).length === count, {
      within: 10_000,
      what: `${count} clients that receive pushes`,
    });
  const isThere = async ({ locks: [{ key }] }: Claim): Promise<boolean> =>
    (await fixture.admin.hexists(fixture.hashOf(key), `k:${key}`)) === 1;

  describe("a connection loss", () => {
    test("in the middle of releases: each was executed once, and fails", async () => {
      const { proxy, client } = await proxied();
      const lockClient = await fixture.open(redis(client, { prefix: fixture.prefix }));
      const claims = Array.from({ length: 20 }, (_, index) => makeClaim(`key ${index}`));
      for (const claim of claims) await lockClient.claimHeld(claim);
      await fixture.admin.config("RESETSTAT");
      proxy.toClient.pause();
      const releases = Promise.allSettled(claims.map((claim) => lockClient.driver.release(toReleases(claim))));
      // 16 releases in a command
      await until(async () => (await calls()) === 2, {
        within: 5_000,
        what: "the commands of all releases at the store",
      });
      proxy.reset();
      proxy.toClient.resume();
      for (const result of await releases)
        expect(String((result as PromiseRejectedResult).reason)).toMatch(BROKEN_CONNECTION);
      // an answer over the new connection arrives after everything else sent there
      expect(await lockClient.renewOnce(makeClaim("other"))).toEqual({ state: "none" });
      expect(await calls(), "and what was asked last").toBe(3);
    });

    test("in the middle of a command: a command reported as failed was not executed, and all others were", async () => {
      const { proxy, client } = await proxied();
      const lockClient = await fixture.open(redis(client, { prefix: fixture.prefix }));
      const claims = Array.from({ length: 20 }, (_, index) => makeClaim(`key ${index}`));
      for (const claim of claims) await lockClient.claimHeld(claim);
      proxy.toTarget.cutAfter(1);
      const results = await Promise.allSettled(claims.map((claim) => lockClient.driver.release(toReleases(claim))));
      // commands after the first may be written to the next connection: they are answered, and the driver reports them in doubt
      const failed = results.map((result) => result.status === "rejected" && !UNCONFIRMED.test(String(result.reason)));
      expect(failed, "the first of them at least").toContain(true);
      const states = (await lockClient.driver.renew(claims)).map((answer) => answer?.state);
      expect(states).toEqual(failed.map((isFailed) => (isFailed ? "held" : "none")));
    });

    test("in the middle of a claim: it was executed once, and is found by asking again", async () => {
      const { proxy, client } = await proxied();
      const lockClient = await fixture.open(redis(client, { prefix: fixture.prefix }));
      const claim = makeClaim("key");
      await fixture.admin.config("RESETSTAT");
      proxy.toClient.pause();
      const pendingClaim = lockClient.claim(claim).catch(String);
      await until(() => isThere(claim), { within: 5_000, what: "the claim at the store" });
      proxy.reset();
      proxy.toClient.resume();
      expect(await pendingClaim).toMatch(BROKEN_CONNECTION);
      expect((await lockClient.claim(claim)).state).toBe("held");
      expect(await calls()).toBe(2);
      expect(await lockClient.driver.release(toReleases(claim))).toEqual([true]);
    });

    test("of the connection for commands alone: all claims are asked about when it is back", async () => {
      const lockClient = await fixture.open(redis(await glide(), { prefix: fixture.prefix }));
      await fixture.admin.call("CLIENT", "PAUSE", "5000", "WRITE");
      const pendingClaim = lockClient.claim(makeClaim("key")).catch(String);
      // b: it is kept waiting, unlike any remaining client of an earlier test
      await until(async () => / flags=b .* cmd=evalsha /.test(String(await fixture.admin.client("LIST"))), {
        within: 3_000,
        what: "the claim at the store",
      });
      await fixture.admin.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
      await fixture.admin.call("CLIENT", "UNPAUSE");
      expect(await pendingClaim).toMatch(BROKEN_CONNECTION);
      expect(lockClient.pushes).toEqual([]);
      await lockClient.renewOnce(makeClaim("other"));
      await until(() => lockClient.pushes.some(({ id }) => id === null), { within: 5_000, what: "word of it" });
    });

    test("in the middle of a release does not report a loss of the lock", async () => {
      const { proxy, client } = await proxied();
      await using locks = createLocks(redis(client, { prefix: fixture.prefix }));
      const lock = await locks.acquire("key");
      await fixture.admin.config("RESETSTAT");
      proxy.toClient.pause();
      const pendingRelease = lock.release();
      await until(async () => (await calls()) === 1, { within: 5_000, what: "the release at the store" });
      proxy.reset();
      proxy.toClient.resume();
      expect(await pendingRelease).toBe(true);
    });

    test("during a claim: one that waits for the connection past its time is released", async () => {
      const { proxy, client } = await proxied();
      const lockClient = await fixture.open(redis(client, { prefix: fixture.prefix, commandTimeoutMs: 1_000 }));
      const claim = makeClaim("key");
      proxy.refuseConnections(true);
      proxy.reset();
      await expect(lockClient.claim(makeClaim("other"))).rejects.toThrow(); // in flight at the break, or waiting
      await expect(lockClient.claim(claim)).rejects.toThrow("no answer within 1000 ms");
      await expect(lockClient.driver.release([{ claim, hasUnansweredClaim: true }])).rejects.toThrow(
        "no answer within 1000 ms",
      );
      proxy.refuseConnections(false);
      await until(async () => (await lockClient.renewOnce(claim).catch(() => null))?.state === "none", {
        within: 10_000,
        what: "word of it",
      });
      expect((await lockClient.claim(claim)).state, "it was released, however late").toBe("none");
    });
  });

  describe("the inbox", () => {
    test("a push is a recheck: the client asks for the grant", async () => {
      const [lockClient, other] = [
        await fixture.open(redis(await glide(), { prefix: fixture.prefix })),
        await fixture.open(),
      ];
      const [first, second] = [makeClaim("key"), makeClaim("key")];
      await other.claimHeld(first);
      await lockClient.claim(second);
      await other.driver.release(toReleases(first));
      await until(() => lockClient.pushes.length > 0, { within: 5_000, what: "the push" });
      expect(lockClient.pushes[0]).toEqual({ id: second.id, answer: undefined });
      expect((await lockClient.renewOnce(second)).state).toBe("held");
      await lockClient.driver.release(toReleases(second));
    });

    test("lost unnoticed: the next recheck finds the grant, and later pushes arrive", async () => {
      const { proxy, client } = await proxied();
      const [lockClient, other] = [await fixture.open(redis(client, { prefix: fixture.prefix })), await fixture.open()];
      const [first, second] = [makeClaim("key"), makeClaim("key")];
      const [third, fourth] = [makeClaim("key 2"), makeClaim("key 2")];
      await other.claimHeld(first);
      await other.claimHeld(third);
      await lockClient.claim(second);
      proxy.refuseConnections(true);
      proxy.disconnect();
      await until(() => proxy.connections() === 0, { within: 5_000, what: "the end of both connections" });
      await other.driver.release(toReleases(first));
      expect(lockClient.pushes).toEqual([]);
      proxy.refuseConnections(false);
      await lockClient.waitForGrant(second);
      await waitForInboxes(2);
      await lockClient.claim(fourth);
      await other.driver.release(toReleases(third));
      await until(() => lockClient.pushes.some(({ id }) => id === fourth.id), { within: 5_000, what: "the push" });
      await lockClient.driver.release(toReleases(second, fourth));
    });

    test("a subscriber that was closed: claims still wait, and rechecks find their grants", async () => {
      const client = await glide();
      const [lockClient, other] = [await fixture.open(redis(client, { prefix: fixture.prefix })), await fixture.open()];
      const [first, second] = [makeClaim("key"), makeClaim("key")];
      await other.claimHeld(first);
      await lockClient.claim(second);
      client.subscriber.close();
      await other.driver.release(toReleases(first));
      expect(await lockClient.waitForGrant(second)).toMatchObject({ state: "held" });
      await lockClient.driver.release(toReleases(second));
    });

    test("is closed with the driver, and the client that was passed stays open", async () => {
      const client = await glide();
      const lockClient = await fixture.open(redis(client, { prefix: fixture.prefix }));
      const inboxes = async (): Promise<number> =>
        ((await fixture.admin.pubsub("CHANNELS", `${fixture.prefix}:3:inbox:*`)) as string[]).length;
      expect(await inboxes()).toBe(1);
      await lockClient.driver.close();
      // glide itself takes three seconds for it
      await until(async () => (await inboxes()) === 0, { within: 12_000, what: "the end of the inbox" });
      expect([await client.client.ping(), await client.subscriber.ping()]).toEqual(["PONG", "PONG"]);
    });
  });

  test("clients of any settings see the same locks", async () => {
    const optionSets = [{}, { protocol: ProtocolVersion.RESP2 }, { lazyConnect: true }, { defaultDecoder: 0 }];
    const lockClients = [];
    for (const settings of optionSets) {
      lockClients.push(await fixture.open(redis(await glide(settings), { prefix: fixture.prefix })));
    }
    const claims = lockClients.map(() => makeClaim("key"));
    for (const [index, lockClient] of lockClients.entries()) await lockClient.claim(claims[index] as never);
    for (const [index, lockClient] of lockClients.entries()) {
      const claim = claims[index] as ReturnType<typeof makeClaim>;
      if (index > 0)
        await until(() => lockClient.pushes.some(({ id }) => id === claim.id), {
          within: 5_000,
          what: `push ${index}`,
        });
      expect(await lockClient.driver.release(toReleases(claim))).toEqual([true]);
    }
  });

  test("the database is the one in the client's settings, also after a connection loss", async () => {
    const lockClient = await fixture.open(redis(await glide({ databaseId: 3 }), { prefix: fixture.prefix }));
    const claim = makeClaim("key");
    await lockClient.claimHeld(claim);
    expect(await fixture.keys()).toEqual([]);
    await fixture.admin.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    await until(async () => (await lockClient.renewOnce(claim).catch(() => null))?.state === "held", {
      within: 5_000,
      what: "word",
    });
    expect(await lockClient.driver.release(toReleases(claim))).toEqual([true]);
    expect(await fixture.keys()).toEqual([]);
  });

  test("the documented rights are enough for the client", async () => {
    const rules = [`~${fixture.prefix}:*`, `&${fixture.prefix}:*`, ...LEAST_PERMISSIONS];
    await fixture.admin.call("ACL", "SETUSER", "least", "reset", "on", ">secret", ...rules);
    await fixture.admin.call("ACL", "LOG", "RESET");
    const client = await glide({ credentials: { username: "least", password: "secret" } });
    const lockClient = await fixture.open(redis(client, { prefix: fixture.prefix }));
    const claim = makeClaim("key");
    await lockClient.claimHeld(claim);
    await fixture.breakSubscribers();
    await waitForInboxes(1);
    expect(await lockClient.driver.release(toReleases(claim))).toEqual([true]);
    expect(await fixture.admin.call("ACL", "LOG")).toEqual([]);
  });

  test("a refusal by the server is explained", { timeout: 90_000 }, async () => {
    const lockClient = await fixture.open(redis(await glide(), { prefix: fixture.prefix }));
    await fixture.admin.replicaof("127.0.0.1", "1");
    try {
      await expect(lockClient.claim(makeClaim("key"))).rejects.toThrow("this is a replica (READONLY)");
    } finally {
      await fixture.admin.replicaof("NO", "ONE");
    }
    const cluster = await startRedisCluster(3);
    onTestFinished(() => cluster.stop());
    const clusterDriver = redis(await glide({}, cluster.ports[0]), { prefix: fixture.prefix });
    await expect(clusterDriver.open(NO_EVENTS)).rejects.toThrow("the server is of another kind (MOVED)");
  });

  test("an unsupported option is refused", async () => {
    const driver = redis(await glide(), { prefix: fixture.prefix, replicas: { minAcks: 1 } });
    await expect(driver.open(NO_EVENTS)).rejects.toThrow("option replicas needs ioredis");
    const cluster = Object.create(GlideClusterClient.prototype) as never;
    expect(() => redis(cluster)).toThrow(/^client must be .*GlideClusterClient is not supported/);
    expect(() => redis({ client: cluster, subscriber: cluster } as never)).toThrow(
      "GlideClusterClient is not supported",
    );
    const bareClient = Object.create(GlideClient.prototype) as never;
    expect(() => redis(bareClient)).toThrow("client must be { client, subscriber } for valkey-glide");
    expect(() => redis({ client: bareClient, subscriber: {} } as never)).toThrow("two clients of valkey-glide");
  });
});
