import { Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis5";
import { Redis as Iovalkey } from "iovalkey";
import { createClient } from "redis";
import { createClient as createClient5 } from "redis5";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import type { RedisClient } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import type { RedisServer } from "../../support/stores/redis.ts";
import { startRedis } from "../../support/stores/redis.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture } from "../../support/stores/redis-fixture.ts";
import { LEAST_PERMISSIONS } from "../../support/stores/redis-permissions.ts";

withRedis((server) => {
  let fixture: RedisFixture;
  beforeEach(() => {
    fixture = createRedisFixture(server().port);
  });
  afterEach(() => fixture.close());

  const readRefusal = async (options: object, otherOptions: object = {}): Promise<string> => {
    const driver = redis(() => new Redis({ port: server().port, host: "127.0.0.1", ...options }), {
      prefix: fixture.prefix,
      ...otherOptions,
    });
    const error = await driver.open(NO_EVENTS).then(
      () => null,
      (failure: unknown) => failure as Error & { code?: string },
    );
    await driver.close();
    return `${error?.code}: ${error?.message}`;
  };

  describe("the user's rights", () => {
    const user = async (name: string, ...rules: string[]): Promise<object> => {
      await fixture.admin.call("ACL", "SETUSER", name, "reset", "on", ">secret", ...rules);
      return { username: name, password: "secret", lazyConnect: true };
    };

    test("the least rights are enough, for every client", async () => {
      const rules = [`~${fixture.prefix}:*`, `&${fixture.prefix}:*`, ...LEAST_PERMISSIONS];
      const credentials = await user("least", ...rules);
      const { port } = server();
      const [address, url] = [{ port, host: "127.0.0.1", ...credentials }, `redis://least:secret@127.0.0.1:${port}`];
      const clients: (() => RedisClient)[] = [
        () => new Redis(address),
        () => new Redis5(address),
        () => new Iovalkey(address),
        () => createClient({ url }),
        () => createClient({ url, RESP: 2 }),
        () => createClient5({ url }),
      ];
      for (const createRedis of clients) {
        const driver = redis(createRedis, { prefix: fixture.prefix });
        const [lockClient, other] = [await fixture.open(driver), await fixture.open()];
        const lockSpecs = ["a", "b"].map((key) => ({ key, permits: 1, limit: 1 }));
        const [first, second] = [makeClaim(lockSpecs), makeClaim(lockSpecs)];
        await other.claimHeld(first);
        expect((await lockClient.claim(second)).state).toBe("waiting");
        await other.driver.release(toReleases(first));
        await until(() => lockClient.pushes.length > 0, { within: 5_000, what: "the push" });
        const held = await lockClient.waitForGrant(second);
        expect((await lockClient.driver.list({ prefix: "" }, { max: 10 })).items.length).toBe(1);
        expect((await lockClient.driver.diagnose?.())?.map(({ status }) => status)).not.toContain("fail");
        expect(await lockClient.driver.detach?.([second])).toEqual([true]);
        expect(await lockClient.driver.revoke?.([{ key: "a", token: held.token, now: false }])).toEqual([true]);
        await lockClient.driver.release([{ claim: second, hasUnansweredClaim: true }]);
      }
    });

    test("a user without any one of them is refused before any claim is placed, and the missing right is named", async () => {
      const keys = [`~${fixture.prefix}:*`, `&${fixture.prefix}:*`];
      for (const missingCommand of ["zadd", "zscore", "hset", "hrandfield", "publish", "del", "pttl"]) {
        const permissions = LEAST_PERMISSIONS.filter((command) => command !== `+${missingCommand}`);
        const message = await readRefusal(await user("lacking", ...keys, ...permissions));
        expect(message).toMatch(new RegExp(`^LOCK_STORE_REFUSED: .*grant \\+${missingCommand}$`));
      }
      expect(await readRefusal(await user("lacking", `~${fixture.prefix}:*`, ...LEAST_PERMISSIONS))).toMatch(
        /^LOCK_STORE_REFUSED.*Holdfast's channels/,
      );
      expect(
        await readRefusal(await user("lacking", "~other:*", `&${fixture.prefix}:*`, ...LEAST_PERMISSIONS)),
      ).toMatch(/^LOCK_STORE_REFUSED.*Holdfast's keys/);
      expect(await readRefusal({ username: "lacking", password: "wrong", lazyConnect: true })).toMatch(
        /^LOCK_STORE_REFUSED: redis \S+: .*WRONGPASS/,
      );
      const leftKeys = (await fixture.keys()).filter((key) => !key.endsWith(":layout"));
      expect(leftKeys).toEqual([]);
    });
  });

  describe("an unsuitable store", () => {
    afterEach(() => fixture.admin.config("SET", "maxmemory-policy", "noeviction"));

    test("that evicts keys is refused, unless that is allowed", async () => {
      for (const policy of ["allkeys-lru", "volatile-lru", "volatile-ttl"]) {
        await fixture.admin.config("SET", "maxmemory-policy", policy);
        expect(await readRefusal({})).toMatch(
          new RegExp(`^LOCK_STORE_REFUSED: redis \\S+: maxmemory-policy is ${policy}`),
        );
        expect(await readRefusal({}, { allowEviction: true })).toBe("undefined: undefined");
      }
    });

    test("with another layout is refused", async () => {
      await fixture.open();
      expect(await fixture.admin.get(`${fixture.prefix}:{00}:layout`)).toBe("3");
      await fixture.admin.set(`${fixture.prefix}:{00}:layout`, "1");
      expect(await readRefusal({})).toMatch(/^LOCK_STORE_REFUSED: .*uses layout 1, but this version supports layout 3/);
    });

    test.each(["yes", "no"])(
      "that is a replica, with replica-read-only %s, is refused",
      { timeout: 20_000 },
      async (readOnly) => {
        const settings = ["--replicaof", "127.0.0.1", String(server().port), "--replica-read-only", readOnly];
        const replica = await startRedis(settings);
        try {
          expect(await readRefusal({ port: replica.port })).toMatch(
            /^LOCK_STORE_REFUSED: redis \S+: this is a replica/,
          );
        } finally {
          await replica.stop();
        }
      },
    );

    test("that is missing is an error within the time to connect", async () => {
      const start = performance.now();
      const message = await readRefusal({ port: 1, retryStrategy: () => 20 }, { connectTimeout: 200 });
      expect(message).toMatch(/not reached within 200 ms/);
      expect(performance.now() - start).toBeLessThan(2_000);
    });
  });

  describe("a full store", () => {
    test("refuses new claims without a trace, and renews, hands off and releases old ones", async () => {
      const [lockClient, other] = [await fixture.open(), await fixture.open()];
      const [holder, waiter, last] = [makeClaim("key"), makeClaim("key"), makeClaim("key")];
      await lockClient.claimHeld(holder);
      await other.claim(waiter);
      await other.claim(last);
      const before = (await fixture.keys()).sort();
      await fixture.admin.config("SET", "maxmemory", "1");
      try {
        for (const wait of [true, false]) {
          await expect(lockClient.claim(makeClaim("other", { wait }))).rejects.toThrow("OOM");
          await expect(lockClient.claim(makeClaim("key"))).rejects.toThrow("OOM");
        }
        const multiKeyClaim = makeClaim(["p", "q"].map((key) => ({ key, permits: 1, limit: 1 })));
        await expect(lockClient.claim(multiKeyClaim)).rejects.toThrow("OOM");
        expect((await fixture.keys()).sort()).toEqual(before);
        expect((await lockClient.renewOnce(holder)).state).toBe("held");
        expect(await lockClient.driver.detach?.([holder])).toEqual([true]);
        expect(await lockClient.driver.release([{ claim: holder, hasUnansweredClaim: true }])).toEqual([true]);
        await until(() => other.pushes.length > 0, { within: 5_000, what: "the push" });
        expect((await other.renewOnce(waiter)).state).toBe("held");
        expect(await other.driver.release(toReleases(waiter))).toEqual([true]);
        const second = await fixture.open();
        expect((await second.renewOnce(last)).state, "who comes to a full store can still take up a claim").toBe(
          "held",
        );
        expect(await second.driver.release(toReleases(last))).toEqual([true]);
      } finally {
        await fixture.admin.config("SET", "maxmemory", "0");
      }
    });
  });
});

describe("a server that is killed and starts empty", () => {
  withRedis((server) => {
    test("reports the loss to its holders, and tokens still rise", { timeout: 20_000 }, async () => {
      const fixture = createRedisFixture(server().port);
      const lockClient = await fixture.open();
      const [holder, waiter, next] = [makeClaim("key", { tokenCount: 64 }), makeClaim("key"), makeClaim("key")];
      const { token } = await lockClient.claimHeld(holder);
      await lockClient.claim(waiter);
      await server().restart();
      await until(() => lockClient.pushes.some(({ id }) => id === null), { within: 10_000, what: "the connection" });
      const answers = await until(() => lockClient.driver.renew([holder, waiter]).catch(() => null), {
        within: 5_000,
        what: "an answer",
      });
      expect(answers).toEqual([{ state: "none" }, { state: "none" }]);
      expect((await lockClient.claimHeld(next)).token).toBeGreaterThan(token + 63n);
      await lockClient.driver.release(toReleases(next));
      await fixture.close();
    });
  });
});

describe("by url", () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedis(["--user", "default", "off", "--user", "app", "on", ">p/w:d", "~*", "&*", "+@all"]);
  }, 120_000);
  afterAll(() => server.stop());
  const url = (user: string, suffix = ""): string => `redis://${user}127.0.0.1:${server.port}${suffix}`;

  test("a lock is taken, with a user, a database and a prefix", async () => {
    const locks = await connect(url("app:p%2Fw%3Ad@", "/3?prefix=mine"), { label: "ana@web-1" });
    await locks.using("invoice:42", async () => {
      const [view] = await locks.list("invoice");
      expect(view?.label).toBe("ana@web-1");
      const admin = new Redis({ port: server.port, username: "app", password: "p/w:d", db: 3 });
      expect((await admin.keys("mine:3:*")).length).toBeGreaterThan(0);
      admin.disconnect();
    });
    await locks.close();
  });

  test("a wrong password is an error at once, which does not show it", async () => {
    const error: unknown = await connect(url("app:hushhush@")).catch((failure: unknown) => failure);
    expect(error).toMatchObject({ code: "LOCK_STORE_REFUSED" });
    const formatValue = (value: unknown): string =>
      value instanceof Error
        ? `${value.stack}${JSON.stringify(Object.getOwnPropertyDescriptors(value))}${formatValue(value.cause)}`
        : "";
    expect(formatValue(error)).toContain("WRONGPASS");
    expect(formatValue(error)).not.toContain("hushhush");
  });

  test("a missing server is an error within the time to connect", async () => {
    const error: unknown = await connect("redis://127.0.0.1:1", { connectTimeout: "1s" }).catch(
      (failure: unknown) => failure,
    );
    expect(error).toMatchObject({ code: "LOCK_STORE_FAILED" });
    expect(String((error as Error).cause)).toContain("ECONNREFUSED");
  });

  test("a malformed url is a TypeError that shows no password", async () => {
    for (const urlSuffix of ["/x", "/0/1", "?tsl=true", "/0#x", "?prefix=a%20b"]) {
      const error: unknown = await connect(url("app:hushhush@", urlSuffix)).catch((failure: unknown) => failure);
      expect(error, urlSuffix).toBeInstanceOf(TypeError);
      expect(String(error)).not.toContain("hushhush");
    }
  });
});
