import { Redis } from "ioredis";
import { createClient } from "redis";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { RedisClient } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture } from "../../support/stores/redis-fixture.ts";

withRedis((server) => {
  let fixture: RedisFixture;
  let cleanups: (() => unknown)[] = [];
  beforeEach(() => {
    fixture = createRedisFixture(server().port);
  });
  afterEach(async () => {
    await fixture.close();
    for (const cleanup of cleanups) await cleanup();
    cleanups = [];
  });

  const ioredis = (options: object = {}): Redis => {
    const client = new Redis({ port: server().port, host: "127.0.0.1", ...options });
    cleanups.push(() => client.disconnect());
    return client;
  };
  const driverOf = (client: RedisClient): Driver => redis(client, { prefix: fixture.prefix });
  const commands = async (name: string): Promise<number> => {
    const stats = await fixture.admin.info("commandstats");
    return Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
  };

  describe("round trips", () => {
    test("an uncontended lock costs two commands, from the first on", async () => {
      await fixture.admin.script("FLUSH");
      const lockClient = await fixture.open();
      await fixture.admin.config("RESETSTAT");
      for (let round = 0; round < 10; round++) {
        const claim = makeClaim("key");
        await lockClient.claimHeld(claim);
        await lockClient.driver.release(toReleases(claim));
      }
      expect(await commands("evalsha")).toBe(20);
      expect(await commands("eval")).toBe(0);
      expect(await commands("publish"), "nobody waits, so nobody is told").toBe(0);
      expect(await commands("time"), "the time is read once a script").toBe(20);
    });

    test("a hand-off is pushed: the next holder sends nothing", async () => {
      const [lockClient, other] = [await fixture.open(), await fixture.open()];
      const [first, second] = [makeClaim("key"), makeClaim("key", { tokenCount: 5 })];
      await lockClient.claimHeld(first);
      await other.claim(second);
      await fixture.admin.config("RESETSTAT");
      await lockClient.driver.release(toReleases(first));
      await until(() => other.pushes.length > 0, { within: 5_000, what: "the push" });
      expect(await commands("evalsha")).toBe(1);
      const [push] = other.pushes;
      expect(push?.id).toBe(second.id);
      expect(push?.answer).toMatchObject({ state: "held", tokenCount: 5 });
      const {
        remainingMs: _,
        storeTimeMs: __,
        ...asked
      } = (await other.renewOnce(second)) as unknown as Record<string, unknown>;
      expect(push?.answer).toMatchObject(asked);
      expect(lockClient.pushes).toEqual([]);
      await other.driver.release(toReleases(second));
    });

    test("a batch is one command, whatever its size", async () => {
      const lockClient = await fixture.open();
      const claims = Array.from({ length: 500 }, (_, index) => makeClaim(`key ${index}`));
      for (const claim of claims) await lockClient.claimHeld(claim);
      await fixture.admin.config("RESETSTAT");
      expect((await lockClient.driver.renew(claims)).every((answer) => answer?.state === "held")).toBe(true);
      expect((await lockClient.driver.release(toReleases(...claims))).every(Boolean)).toBe(true);
      expect(await commands("evalsha")).toBe(2);
    });

    test("scripts that Redis has lost are loaded again", async () => {
      const lockClient = await fixture.open();
      const claim = makeClaim("key");
      await fixture.admin.script("FLUSH");
      await lockClient.claimHeld(claim);
      await fixture.admin.script("FLUSH");
      expect((await lockClient.renewOnce(claim)).state).toBe("held");
      await fixture.admin.script("FLUSH");
      expect(await lockClient.driver.release(toReleases(claim))).toEqual([true]);
    });
  });

  describe("clients", () => {
    test("a client that the caller passes stays open and unchanged", async () => {
      for (const createRedis of [
        async () => ioredis(),
        async () => {
          const client = await createClient({ url: server().url })
            .on("error", () => undefined)
            .connect();
          cleanups.push(() => client.destroy());
          return client;
        },
      ]) {
        const client = await createRedis();
        const listeners = (): number[] =>
          ["ready", "close", "end", "error", "reconnecting"].map((name) => client.listenerCount(name));
        const before = listeners();
        const lockClient = await fixture.open(driverOf(client));
        const claim = makeClaim("key");
        await lockClient.claimHeld(claim);
        await lockClient.driver.release(toReleases(claim));
        await lockClient.driver.close();
        expect(listeners()).toEqual(before);
        expect(await (client as Redis).ping()).toBe("PONG");
      }
    });

    test("a client that the driver creates is closed, and so is its inbox", async () => {
      const client = ioredis();
      const lockClient = await fixture.open(redis(() => client, { prefix: fixture.prefix }));
      const inboxes = (): Promise<unknown> => fixture.admin.pubsub("CHANNELS", `${fixture.prefix}:3:inbox:*`);
      expect(await inboxes()).toHaveLength(1);
      await lockClient.driver.close();
      await until(() => client.status === "end", { within: 5_000, what: "the end of the client" });
      await until(async () => ((await inboxes()) as []).length === 0, { within: 5_000, what: "the end of the inbox" });
    });

    test("clients with any options see the same locks", async () => {
      const clients = [
        ioredis({ keyPrefix: "app:" }),
        ioredis({ lazyConnect: true }),
        ioredis({ enableAutoPipelining: true }),
        ioredis({ protocol: 2 }),
        ioredis({ stringNumbers: true }),
        await createClient({ url: server().url, RESP: 2 })
          .on("error", () => undefined)
          .connect(),
      ];
      cleanups.push(() => (clients.at(-1) as { destroy(): void }).destroy());
      const lockClients = [];
      for (const client of clients) lockClients.push(await fixture.open(driverOf(client as RedisClient)));
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
      expect(await fixture.admin.keys("app:*"), "a prefix of the client's own does not count").toEqual([]);
    });

    test("an object that is not a Redis client is refused at once, naming the argument", () => {
      for (const invalidClient of [
        undefined,
        null,
        5,
        "redis://",
        {},
        { call() {} },
        { sendCommand() {} },
        { customCommand() {} },
      ]) {
        expect(() => redis(invalidClient as never), String(invalidClient)).toThrow(/^client must be/);
      }
      for (const prefix of ["", "a b", "a{b}", "x".repeat(65), 5]) {
        expect(() => redis(ioredis(), { prefix: prefix as string })).toThrow(/^prefix must be/);
      }
    });
  });

  describe("a broken connection", () => {
    test("is noticed: the core is notified to ask about everything", async () => {
      const client = ioredis();
      const lockClient = await fixture.open(driverOf(client));
      const claim = makeClaim("key");
      await lockClient.claimHeld(claim);
      await fixture.admin.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
      await until(() => lockClient.pushes.some(({ id }) => id === null), { within: 5_000, what: "word of it" });
      expect((await lockClient.renewOnce(claim)).state).toBe("held");
      await lockClient.driver.release(toReleases(claim));
    });

    test.each([
      ["ioredis", (port: number): Redis => ioredis({ port, retryStrategy: () => 10 })],
      [
        "node-redis",
        (port: number) => {
          const client = createClient({ url: `redis://127.0.0.1:${port}`, socket: { reconnectStrategy: 10 } });
          cleanups.push(() => client.destroy());
          return client;
        },
      ],
    ])("queues no command for later, by %s", async (_, createRedis) => {
      await using proxy = await tcpProxy({ host: "127.0.0.1", port: server().port });
      const { port } = proxy.address as { port: number };
      const client = createRedis(port);
      client.on("error", () => undefined);
      const isReady = (): boolean => ("isReady" in client ? client.isReady : (client as Redis).status === "ready");
      const lockClient = await fixture.open(driverOf(client));
      proxy.refuseConnections(true);
      proxy.disconnect();
      await until(() => !isReady(), { within: 5_000, what: "the break" });
      const claim = makeClaim("key");
      await expect(lockClient.claim(claim)).rejects.toThrow("not connected");
      proxy.refuseConnections(false);
      await until(isReady, { within: 5_000, what: "the connection" });
      expect(await lockClient.renewOnce(claim)).toEqual({ state: "none" });
      expect((await lockClient.driver.list({ prefix: "" }, { max: 10 })).items).toEqual([]);
    });

    test("a claim resent by the client library, abandoned and released meanwhile, is released again", async () => {
      await using proxy = await tcpProxy({ host: "127.0.0.1", port: server().port });
      const { port } = proxy.address as { port: number };
      const client = ioredis({ port, retryStrategy: () => 10 });
      client.on("error", () => undefined);
      const options = { prefix: fixture.prefix, commandTimeoutMs: 1_000 };
      const lockClient = await fixture.open(redis(client, options));
      const claim = makeClaim("key");
      proxy.toTarget.pause();
      await expect(lockClient.claim(claim)).rejects.toThrow("no answer within 1000 ms");
      proxy.refuseConnections(true);
      proxy.reset();
      proxy.toTarget.resume();
      await until(() => client.status !== "ready", { within: 5_000, what: "the break" });
      await expect(lockClient.driver.release([{ claim, hasUnansweredClaim: true }])).rejects.toThrow("not connected");
      await fixture.admin.config("RESETSTAT");
      proxy.refuseConnections(false);
      // ioredis sends the claim again, it is granted, and released
      await until(async () => (await commands("evalsha")) >= 2, { within: 5_000, what: "both calls" });
      await until(async () => (await lockClient.driver.list({ prefix: "" }, { max: 10 })).items.length === 0, {
        within: 5_000,
        what: "an empty list",
      });
      expect((await lockClient.claim(claim)).state).toBe("none");
    });

    test("a release that was resent and finds nothing has an unknown outcome", async () => {
      await using proxy = await tcpProxy({ host: "127.0.0.1", port: server().port });
      const { port } = proxy.address as { port: number };
      const client = ioredis({ port, retryStrategy: () => 10 });
      client.on("error", () => undefined);
      const lockClient = await fixture.open(driverOf(client));
      const claim = makeClaim("key");
      await lockClient.claimHeld(claim);
      proxy.toClient.pause();
      const pendingRelease = lockClient.driver.release(toReleases(claim));
      pendingRelease.catch(() => undefined);
      await until(async () => (await fixture.admin.hexists(fixture.hashOf("key"), "k:key")) === 0, {
        within: 5_000,
        what: "the release at the store",
      });
      proxy.reset();
      proxy.toClient.resume();
      await expect(pendingRelease).rejects.toThrow("the connection broke while a release was under way");
    });

    test("a server that hangs is given up on, and its late answers do no harm", async () => {
      const lockClient = await fixture.open(
        redis(() => ioredis(), { prefix: fixture.prefix, commandTimeoutMs: 1_000 }),
      );
      const claim = makeClaim("key");
      const release = () => lockClient.driver.release([{ claim, hasUnansweredClaim: true }]);
      server().signal("SIGSTOP");
      try {
        await expect(lockClient.claim(claim)).rejects.toThrow("no answer within 1000 ms");
        // the connection was given up: nothing was answered on it
        await expect(release()).rejects.toThrow();
      } finally {
        server().signal("SIGCONT");
      }
      // as the client does
      await until(
        () =>
          release().then(
            () => true,
            () => false,
          ),
        { within: 5_000, what: "the answer to the release" },
      );
      await until(async () => (await lockClient.renewOnce(claim).catch(() => null))?.state === "none", {
        within: 5_000,
        what: "an answer",
      });
      expect((await lockClient.claim(claim)).state, "it was released, however late").toBe("none");
      expect((await lockClient.driver.list({ prefix: "" }, { max: 10 })).items).toEqual([]);
    });

    test("no error shows an id or a password", async () => {
      const lockClient = await fixture.open();
      const claim = makeClaim("key");
      await fixture.admin.set(`${fixture.prefix}:3:{00}:x`, 1);
      await lockClient.claimHeld(claim);
      await fixture.admin.set(fixture.hashOf("key"), "of another type");
      const error: unknown = await lockClient.renewOnce(claim).catch((failure: unknown) => failure);
      expect(String(error)).toContain("WRONGTYPE");
      expect(String(error), "nor the digest of a script").not.toMatch(/[0-9a-f]{40}/);
      expect(JSON.stringify(Object.getOwnPropertyDescriptors(error))).not.toContain(claim.id);
      // including tasks without an owner
      await fixture.admin.del(await fixture.keys());
    });
  });
});
