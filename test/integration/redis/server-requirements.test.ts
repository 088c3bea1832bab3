import { Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis5";
import { Redis as Iovalkey } from "iovalkey";
import { createClient } from "redis";
import { createClient as createClient5 } from "redis5";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import type { RedisClient } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import type { RedisServer } from "../../support/stores/redis.ts";
import { startRedis } from "../../support/stores/redis.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture, makeClaim } from "../../support/stores/redis-fixture.ts";
import { LEAST_PERMISSIONS } from "../../support/stores/redis-permissions.ts";
import { until } from "../../support/until.ts";

withRedis((server) => {
  let scene: RedisFixture;
  beforeEach(() => {
    scene = createRedisFixture(server().port);
  });
  afterEach(() => scene.close());

  const refused = async (options: object, more: object = {}): Promise<string> => {
    const driver = redis(() => new Redis({ port: server().port, host: "127.0.0.1", ...options }), {
      prefix: scene.prefix,
      ...more,
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
      await scene.admin.call("ACL", "SETUSER", name, "reset", "on", ">secret", ...rules);
      return { username: name, password: "secret", lazyConnect: true };
    };

    test("the least rights are enough, for every client", async () => {
      const rules = [`~${scene.prefix}:*`, `&${scene.prefix}:*`, ...LEAST_PERMISSIONS];
      const credentials = await user("least", ...rules);
      const { port } = server();
      const [place, url] = [{ port, host: "127.0.0.1", ...credentials }, `redis://least:secret@127.0.0.1:${port}`];
      const clients: (() => RedisClient)[] = [
        () => new Redis(place),
        () => new Redis5(place),
        () => new Iovalkey(place),
        () => createClient({ url }),
        () => createClient({ url, RESP: 2 }),
        () => createClient5({ url }),
      ];
      for (const make of clients) {
        const driver = redis(make, { prefix: scene.prefix });
        const [one, other] = [await scene.open(driver), await scene.open()];
        const holds = ["a", "b"].map((key) => ({ key, permits: 1, limit: 1 }));
        const [first, second] = [makeClaim(holds), makeClaim(holds)];
        await other.claimHeld(first);
        expect((await one.claim(second)).state).toBe("waiting");
        await other.driver.release(toReleases(first));
        await until(() => one.pushes.length > 0, { within: 5_000, what: "the push" });
        const held = await one.waitForGrant(second);
        expect((await one.driver.list({ prefix: "" }, { max: 10 })).items.length).toBe(1);
        expect((await one.driver.diagnose?.())?.map(({ status }) => status)).not.toContain("fail");
        expect(await one.driver.detach?.([second])).toEqual([true]);
        expect(await one.driver.revoke?.([{ key: "a", token: held.token, now: false }])).toEqual([true]);
        await one.driver.release([{ claim: second, hasUnansweredClaim: true }]);
      }
    });

    test("a user without any one of them is refused before any claim is placed, and the missing right is named", async () => {
      const keys = [`~${scene.prefix}:*`, `&${scene.prefix}:*`];
      for (const lacking of ["zadd", "zscore", "zrangebylex", "publish", "del", "pttl"]) {
        const without = LEAST_PERMISSIONS.filter((command) => command !== `+${lacking}`);
        const said = await refused(await user("lacking", ...keys, ...without));
        expect(said).toMatch(new RegExp(`^DRIVER_FATAL: .*grant \\+${lacking}$`));
      }
      expect(await refused(await user("lacking", `~${scene.prefix}:*`, ...LEAST_PERMISSIONS))).toMatch(
        /^DRIVER_FATAL.*Holdfast's channels/,
      );
      expect(await refused(await user("lacking", "~other:*", `&${scene.prefix}:*`, ...LEAST_PERMISSIONS))).toMatch(
        /^DRIVER_FATAL.*Holdfast's keys/,
      );
      expect(await refused({ username: "lacking", password: "wrong", lazyConnect: true })).toMatch(
        /^DRIVER_FATAL: redis \S+: .*WRONGPASS/,
      );
      const left = (await scene.keys()).filter((key) => !key.endsWith(":layout"));
      expect(left).toEqual([]);
    });
  });

  describe("an unsuitable store", () => {
    afterEach(() => scene.admin.config("SET", "maxmemory-policy", "noeviction"));

    test("that evicts keys is refused, unless that is allowed", async () => {
      for (const policy of ["allkeys-lru", "volatile-lru", "volatile-ttl"]) {
        await scene.admin.config("SET", "maxmemory-policy", policy);
        expect(await refused({})).toMatch(new RegExp(`^DRIVER_FATAL: redis \\S+: maxmemory-policy is ${policy}`));
        expect(await refused({}, { allowEviction: true })).toBe("undefined: undefined");
      }
    });

    test("with another layout is refused", async () => {
      await scene.open();
      expect(await scene.admin.get(`${scene.prefix}:{00}:layout`)).toBe("1");
      await scene.admin.set(`${scene.prefix}:{00}:layout`, "2");
      expect(await refused({})).toMatch(/^DRIVER_FATAL: .*uses layout 2, but this version supports layout 1/);
    });

    test("that is a replica is refused", { timeout: 20_000 }, async () => {
      const replica = await startRedis(["--replicaof", "127.0.0.1", String(server().port)]);
      try {
        expect(await refused({ port: replica.port })).toMatch(/^DRIVER_FATAL: redis \S+: this is a replica/);
      } finally {
        await replica.stop();
      }
    });

    test("that is missing is an error within the time to connect", async () => {
      const start = performance.now();
      const said = await refused({ port: 1, retryStrategy: () => 20 }, { connectTimeoutMs: 200 });
      expect(said).toMatch(/not reached within 200 ms/);
      expect(performance.now() - start).toBeLessThan(2_000);
    });
  });

  describe("a full store", () => {
    test("refuses new claims without a trace, and renews, hands off and releases old ones", async () => {
      const [one, other] = [await scene.open(), await scene.open()];
      const [holder, waiter, last] = [makeClaim("key"), makeClaim("key"), makeClaim("key")];
      await one.claimHeld(holder);
      await other.claim(waiter);
      await other.claim(last);
      const before = (await scene.keys()).sort();
      await scene.admin.config("SET", "maxmemory", "1");
      try {
        for (const wait of [true, false]) {
          await expect(one.claim(makeClaim("other", { wait }))).rejects.toThrow("OOM");
          await expect(one.claim(makeClaim("key"))).rejects.toThrow("OOM");
        }
        const both = makeClaim(["p", "q"].map((key) => ({ key, permits: 1, limit: 1 })));
        await expect(one.claim(both)).rejects.toThrow("OOM");
        expect((await scene.keys()).sort()).toEqual(before);
        expect((await one.renewOnce(holder)).state).toBe("held");
        expect(await one.driver.detach?.([holder])).toEqual([true]);
        expect(await one.driver.release([{ claim: holder, hasUnansweredClaim: true }])).toEqual([true]);
        await until(() => other.pushes.length > 0, { within: 5_000, what: "the push" });
        expect((await other.renewOnce(waiter)).state).toBe("held");
        expect(await other.driver.release(toReleases(waiter))).toEqual([true]);
        const second = await scene.open();
        expect((await second.renewOnce(last)).state, "who comes to a full store can still take up a claim").toBe(
          "held",
        );
        expect(await second.driver.release(toReleases(last))).toEqual([true]);
      } finally {
        await scene.admin.config("SET", "maxmemory", "0");
      }
    });
  });
});

describe("a server that is killed and starts empty", () => {
  withRedis((server) => {
    test("reports the loss to its holders, and tokens still rise", { timeout: 20_000 }, async () => {
      const scene = createRedisFixture(server().port);
      const one = await scene.open();
      const [holder, waiter, next] = [makeClaim("key", { tokenCount: 64 }), makeClaim("key"), makeClaim("key")];
      const { token } = await one.claimHeld(holder);
      await one.claim(waiter);
      await server().restart();
      await until(() => one.pushes.some(({ id }) => id === null), { within: 10_000, what: "the connection" });
      const answers = await until(() => one.driver.renew([holder, waiter]).catch(() => null), {
        within: 5_000,
        what: "an answer",
      });
      expect(answers).toEqual([{ state: "none" }, { state: "none" }]);
      expect((await one.claimHeld(next)).token).toBeGreaterThan(token + 63n);
      await one.driver.release(toReleases(next));
      await scene.close();
    });
  });
});

describe("by url", () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedis(["--user", "default", "off", "--user", "app", "on", ">p/w:d", "~*", "&*", "+@all"]);
  }, 120_000);
  afterAll(() => server.stop());
  const url = (user: string, rest = ""): string => `redis://${user}127.0.0.1:${server.port}${rest}`;

  test("a lock is taken, with a user, a database and a prefix", async () => {
    const locks = await connect(url("app:p%2Fw%3Ad@", "/3?prefix=mine"), { label: "ana@web-1" });
    await locks.using("invoice:42", async () => {
      const [view] = await locks.list("invoice");
      expect(view?.label).toBe("ana@web-1");
      const admin = new Redis({ port: server.port, username: "app", password: "p/w:d", db: 3 });
      expect((await admin.keys("mine:1:*")).length).toBeGreaterThan(2);
      admin.disconnect();
    });
    await locks.close();
  });

  test("a wrong password is an error at once, which does not show it", async () => {
    const error: unknown = await connect(url("app:hushhush@")).catch((failure: unknown) => failure);
    expect(error).toMatchObject({ code: "DRIVER_FATAL" });
    const shown = (of: unknown): string =>
      of instanceof Error ? `${of.stack}${JSON.stringify(Object.getOwnPropertyDescriptors(of))}${shown(of.cause)}` : "";
    expect(shown(error)).toContain("WRONGPASS");
    expect(shown(error)).not.toContain("hushhush");
  });

  test("a missing server is an error within the time to connect", async () => {
    const error: unknown = await connect("redis://127.0.0.1:1", { connectTimeout: "1s" }).catch(
      (failure: unknown) => failure,
    );
    expect(error).toMatchObject({ code: "DRIVER_FAILED" });
    expect(String((error as Error).cause)).toContain("ECONNREFUSED");
  });

  test("a malformed url is a TypeError that shows no password", async () => {
    for (const wrong of ["/x", "/0/1", "?tsl=true", "/0#x", "?prefix=a%20b"]) {
      const error: unknown = await connect(url("app:hushhush@", wrong)).catch((failure: unknown) => failure);
      expect(error, wrong).toBeInstanceOf(TypeError);
      expect(String(error)).not.toContain("hushhush");
    }
  });
});
