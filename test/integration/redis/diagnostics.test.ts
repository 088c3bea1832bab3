/** What open() and `holdfast doctor` report about a server, and the rights each client needs. */

import { Redis } from "ioredis";
import { createClient } from "redis";
import { afterEach, beforeEach, expect, test } from "vitest";
import { diagnoseServer } from "../../../src/drivers/redis/diagnostics.ts";
import type { RedisOptions } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { connect } from "../../../src/index.ts";
import type { Check, Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { cliSandbox } from "../../support/cli-sandbox.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import { startRedis } from "../../support/stores/redis.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture, markLongInUse } from "../../support/stores/redis-fixture.ts";

const sandbox = cliSandbox();

const diagnosticMessages = (checks: readonly Check[]): Record<string, string> =>
  Object.fromEntries(checks.map(({ name, status, message }) => [name, `${status}: ${message}`]));

withRedis((server) => {
  let fixture: RedisFixture;
  let warnings: string[];
  beforeEach(() => {
    fixture = createRedisFixture(server().port);
    warnings = [];
  });
  afterEach(() => fixture.close());

  const driver = (options: RedisOptions = {}, client: object = {}): Driver =>
    redis(() => new Redis({ port: server().port, host: "127.0.0.1", ...client }), {
      prefix: fixture.prefix,
      warn: (text) => warnings.push(text),
      ...options,
    });
  const readChecks = async (checkedDriver: Driver): Promise<Record<string, string>> =>
    diagnosticMessages((await checkedDriver.diagnose?.()) ?? []);

  test("a server without persistence is accepted, and reported at once and by doctor", async () => {
    const { driver: lockClient } = await fixture.open(driver());
    expect(warnings).toEqual([
      expect.stringMatching(/^redis: no append-only file: a restart loses held locks.*; set append/),
    ]);
    expect(await readChecks(lockClient)).toEqual({
      version: expect.stringMatching(/^ok: Redis \d+\.\d+\.\d+$/),
      role: "ok: master, without replicas",
      memory: "ok: no limit, nothing is evicted",
      clients: expect.stringMatching(/^ok: \d+ of \d+ connections in use$/),
      appendonly: expect.stringMatching(/^warn: no append-only file/),
      keys: expect.stringMatching(/^ok: \d+ keys of Holdfast, each with a time to live$/),
    });
  });

  test("an append-only file is good; a full memory and eviction are not", async () => {
    const admin = fixture.admin;
    try {
      await admin.config("SET", "appendonly", "yes");
      await until(async () => /aof_enabled:1/.test(await admin.info("persistence")), {
        within: 5_000,
        what: "the file",
      });
      await admin.setrange(`${fixture.prefix}:filler`, 20_000_000, "x"); // beside which connections do not count
      const used = Number(/used_memory:(\d+)/.exec(await admin.info("memory"))?.[1]);
      await admin.config("SET", "maxmemory", String(Math.round(used * 1.05)));
      await admin.config("SET", "maxmemory-policy", "volatile-lru");
      const { driver: lockClient } = await fixture.open(driver({ allowEviction: true }));
      expect(warnings).toEqual([
        "redis: maxmemory-policy is volatile-lru: held locks may be evicted; set maxmemory-policy noeviction, or use a separate server for locks",
      ]);
      await admin.config("SET", "maxmemory-policy", "noeviction");
      const { memory, appendonly } = await readChecks(lockClient);
      expect(appendonly).toMatch(/^ok: append-only file/);
      expect(memory).toMatch(/^warn: \d+ % of maxmemory in use/);
    } finally {
      await admin.config("SET", "maxmemory", "0");
      await admin.config("SET", "maxmemory-policy", "noeviction");
      await admin.config("SET", "appendonly", "no");
      await admin.del(`${fixture.prefix}:filler`);
    }
  });

  test("a replica beside the master is reported, unless the loss of its last writes is guarded against", {
    timeout: 30_000,
  }, async () => {
    const replica = await startRedis(["--replicaof", "127.0.0.1", String(server().port)]);
    try {
      await until(async () => /connected_slaves:1/.test(await fixture.admin.info("replication")), {
        within: 15_000,
        what: "the replica",
      });
      const { driver: lockClient } = await fixture.open(driver());
      expect(await readChecks(lockClient)).toMatchObject({
        role: "ok: master, with 1 replica",
        failover: expect.stringMatching(
          /^warn: a promoted replica may not have the last locks granted, and a master .* keeps granting/,
        ),
      });
      const guardOptions = { guardDataLoss: { maxTtlMs: 100 } };
      const { driver: guarded } = await fixture.open(driver(guardOptions));
      expect((await readChecks(guarded)).failover).toMatch(
        /^warn: guardDataLoss is on; but a master .* keeps granting/,
      );
      await fixture.admin.config("SET", "min-replicas-to-write", "1");
      // the server counts a replica only once a second, and not during the initial synchronization
      await until(async () => /min_slaves_good_slaves:1/.test(await fixture.admin.info("replication")), {
        within: 15_000,
        what: "the replica to count",
      });
      expect((await readChecks(lockClient)).failover).toMatch(
        /^warn: a promoted replica may not have [^,]*; min-replicas/,
      );
      expect((await readChecks(guarded)).failover).toMatch(/^ok: guardDataLoss is on; min-replicas-to-write stops/);
      const { driver: patient } = await fixture.open(driver({ replicas: { minAcks: 1 } }));
      expect((await readChecks(patient)).failover).toBe("ok: grants and renewals wait for 1 of 1 replicas");
    } finally {
      await fixture.admin.config("SET", "min-replicas-to-write", "0");
      await replica.stop();
    }
  });

  test("a warning can be silenced by name, in an option or a url, and an unknown name is refused", async () => {
    await fixture.open(driver({ silenceWarnings: ["appendonly"] }));
    expect(warnings).toEqual([]);
    await fixture.open(driver({ guardDataLoss: { maxTtlMs: 100 }, silenceWarnings: ["guardDataLoss"] }));
    expect(warnings).toEqual([]);
    await fixture.open(driver({ silenceWarnings: ["failover"] }));
    expect(warnings).toEqual([expect.stringMatching(/^redis: no append-only file/)]);
    for (const invalidValue of ["appendonly", {}, null]) {
      expect(() => driver({ silenceWarnings: invalidValue as [] })).toThrow(
        /^silenceWarnings must be a list of version, role, failover, /,
      );
    }
    for (const invalidValue of ["apendonly", 1, ""]) {
      expect(() => driver({ silenceWarnings: ["disk", invalidValue as "disk"] })).toThrow(
        `silenceWarnings has no warning ${JSON.stringify(invalidValue)}: use version, role,`,
      );
    }
    await expect(connect(`${server().url}?silenceWarnings=appendonly,nothing`)).rejects.toThrow(
      /^silenceWarnings has no warning "nothing"/,
    );
  });

  test("a lack of free connections is reported: without one for pushes, waits take seconds", async () => {
    await fixture.admin.config("SET", "maxclients", "10");
    try {
      const { driver: lockClient } = await fixture.open(driver({ silenceWarnings: ["appendonly"] }));
      const otherRedises = Array.from({ length: 6 }, () => new Redis(server().port, "127.0.0.1"));
      for (const otherRedis of otherRedises) await otherRedis.ping();
      expect((await readChecks(lockClient)).clients).toMatch(/^warn: (?:9|10) of 10 connections in use$/);
      for (const otherRedis of otherRedises) otherRedis.disconnect();
    } finally {
      await fixture.admin.config("SET", "maxclients", "10000");
    }
  });

  test("a version without the required commands is bad", async () => {
    const info = (version: string) => async () => `redis_version:${version}\r\nrole:master\r\nconnected_slaves:0\r\n`;
    const probed = { prefix: "p:", isPermanentKey: () => false, hasFailover: false, isGuarded: false, replicaAcks: 0 };
    const level = async (version: string) => (await diagnoseServer(info(version), probed))[0]?.status;
    expect(await Promise.all(["2.8.24", "6.0.16", "6.2.0", "7.0.15", "8.2"].map(level))).toEqual([
      "fail",
      "fail",
      "ok",
      "ok",
      "ok",
    ]);
  });

  test("Holdfast keys without a time to live: none after every operation; a planted one is found", async () => {
    const lockClient = await fixture.open(driver({ guardDataLoss: { maxTtlMs: 60_000 } }));
    await markLongInUse(fixture.admin, fixture.prefix);
    const sharedClaim = makeClaim([
      { key: "a", permits: 1, limit: 2 },
      { key: "b", permits: 1, limit: 2 },
    ]);
    const claims = [makeClaim("a"), sharedClaim, makeClaim("a"), makeClaim("c")];
    for (const claim of claims) await lockClient.claim(claim);
    await lockClient.driver.renew(claims);
    await lockClient.driver.release([{ claim: claims[0]!, hasUnansweredClaim: true }]);
    await lockClient.driver.detach?.([sharedClaim]);
    expect((await readChecks(lockClient.driver)).keys).toMatch(
      /^ok: (?:[4-9]|\d\d) keys of Holdfast, each with a time to live$/,
    );
    const [leaked] = (await fixture.keys()).filter((key) => key.endsWith("}:h"));
    await fixture.admin.persist(leaked as string);
    expect((await readChecks(lockClient.driver)).keys).toMatch(
      /^fail: 1 of \d+ keys of Holdfast have no time to live$/,
    );
    await lockClient.driver.release(toReleases(...claims));
    await fixture.admin.pexpire(leaked as string, 60_000);
  });

  test("a user without the rights for a check is told so, and locks work nevertheless", async () => {
    const rules = ["reset", "on", ">secret", `~${fixture.prefix}:*`, `&${fixture.prefix}:*`, "+@all", "-info", "-scan"];
    await fixture.admin.call("ACL", "SETUSER", "blind", ...rules);
    const lockClient = await fixture.open(
      driver({}, { username: "blind", password: "secret", enableReadyCheck: false }),
    );
    expect(warnings).toEqual([]);
    expect(await readChecks(lockClient.driver)).toEqual({
      server: "unknown: the server refuses INFO to this user: version, role, memory and persistence are unknown",
      keys: "unknown: the server refuses SCAN to this user, so keys were not checked",
    });
    const claim = makeClaim("key");
    await lockClient.claimHeld(claim);
    await lockClient.driver.release(toReleases(claim));
  });

  test("a client that may not select its database is refused, since it would continue in another one", async () => {
    const rules = ["reset", "on", ">secret", `~${fixture.prefix}:*`, `&${fixture.prefix}:*`, "+@all", "-select"];
    await fixture.admin.call("ACL", "SETUSER", "stuck", ...rules);
    const user = { username: "stuck", password: "secret" };
    await expect(fixture.open(driver({}, { ...user, db: 3 }))).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
      message: expect.stringMatching(/NOPERM.*select/),
    });
    await expect(fixture.open(driver({}, { db: 99 }))).rejects.toThrow(/DB index is out of range/);
    await fixture.admin.call("ACL", "SETUSER", "stuck", "+select");
    const lockClient = await fixture.open(driver({}, { ...user, db: 3 }));
    await lockClient.claimHeld(makeClaim("a"));
    // ioredis itself resends a command in flight when the connection breaks, in the other database
    await fixture.admin.call("CLIENT", "PAUSE", "10000", "WRITE");
    const underWay = lockClient.driver.claim(makeClaim("b"));
    await fixture.admin.call("ACL", "SETUSER", "stuck", "-select");
    // b: it is kept waiting there
    await until(async () => / flags=b .* cmd=evalsha /.test(String(await fixture.admin.client("LIST"))), {
      within: 5_000,
      what: "the claim at the server",
    });
    await fixture.admin.client("KILL", "USER", "stuck");
    await fixture.admin.call("CLIENT", "UNPAUSE");
    await expect(underWay).rejects.toThrow(/NOPERM/);
    await expect(lockClient.driver.claim(makeClaim("b"))).rejects.toThrow(/NOPERM/);
    await fixture.admin.call("ACL", "SETUSER", "stuck", "+select");
    await lockClient.claimHeld(makeClaim("b"));
  });

  test("a client that its owner moves to another database grants nothing there", async () => {
    const sharedRedis = new Redis(server().port, "127.0.0.1");
    const lockClient = await fixture.open(redis(sharedRedis, { prefix: fixture.prefix, warn: () => undefined }));
    await lockClient.claimHeld(makeClaim("a"));
    await sharedRedis.select(5);
    await expect(lockClient.driver.claim(makeClaim("a"))).rejects.toThrow(/switched from database 0 to 5/);
    await sharedRedis.select(0);
    expect(await lockClient.claim(makeClaim("a"))).toMatchObject({ state: "waiting" });
    sharedRedis.disconnect();
  });

  test("a node-redis client moved unnoticed has lost its holds there, and reports the loss", async () => {
    const sharedRedis = await createClient({ url: server().url })
      .on("error", () => undefined)
      .connect();
    const lockClient = await fixture.open(
      redis(sharedRedis, { prefix: fixture.prefix, warn: (text) => warnings.push(text) }),
    );
    const claim = makeClaim("a");
    await lockClient.claimHeld(claim);
    await sharedRedis.select(5);
    expect(await lockClient.renewOnce(claim)).toEqual({ state: "none" });
    expect(warnings).toContainEqual(expect.stringMatching(/^redis: the server has lost a lock that this client held/));
    sharedRedis.destroy();
  });

  test("an unusable database is explained: a command is missing, a key has another type, the client is in a MULTI", async () => {
    const old = await startRedis(["--rename-command", "HRANDFIELD", ""]);
    const oldDriver = redis(() => new Redis(old.port, "127.0.0.1"), { warn: () => undefined });
    await expect(oldDriver.open(NO_EVENTS)).rejects.toThrow(
      /does not have HRANDFIELD \(unknown command\): it is older/,
    );
    await old.stop();
    await fixture.admin.lpush(`${fixture.prefix}:{00}:layout`, "x");
    await expect(fixture.open(driver())).rejects.toThrow(/:layout was not written by Holdfast: use another prefix/);
    const busyRedis = new Redis(server().port, "127.0.0.1");
    await busyRedis.multi({ pipeline: false });
    await expect(fixture.open(redis(busyRedis, { prefix: fixture.prefix }))).rejects.toThrow(/inside a MULTI/);
    busyRedis.disconnect();
  });

  test("holdfast run words the warnings itself, and omits them with --quiet or --json", async () => {
    const url = `redis://127.0.0.1:${server().port}?prefix=${fixture.prefix}`;
    const runStderr = async (storeUrl: string, ...flags: string[]): Promise<string> =>
      (await sandbox.run(["run", "key", "--url", storeUrl, ...flags, "--", "true"])).err;
    expect(await runStderr(url)).toMatch(/^holdfast: warning: redis: no append-only file: [^\n]+\n$/);
    expect([await runStderr(url, "--quiet"), await runStderr(url, "--json")]).toEqual(["", ""]);
    expect(await runStderr(`${url}&silenceWarnings=appendonly`)).toBe("");
  });

  test("holdfast doctor prints them between reach and latency", async () => {
    const url = `redis://127.0.0.1:${server().port}?prefix=${fixture.prefix}`;
    const { code, out } = await sandbox.run(["doctor", "--url", url]);
    expect(code).toBe(0);
    expect(out).toMatch(/ok +reachable .*ok +version +Redis.*WARN +appendonly .*ok +keys .*ok +latency /s);
  });
});
