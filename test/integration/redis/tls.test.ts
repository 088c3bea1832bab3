/** A single server, a Cluster and Sentinels over TLS, as a user with few rights. */

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createCluster } from "redis";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { toHashSlot } from "../../../src/drivers/redis/hash-slot.ts";
import { toBucket } from "../../../src/drivers/redis/key-names.ts";
import type { Locks } from "../../../src/index.ts";
import { connect, createLocks } from "../../../src/index.ts";
import { freePort } from "../../../src/torture/processes/free-port.ts";
import type { CertificateFiles } from "../../support/certificates.ts";
import { createAuthority, writeCertificate } from "../../support/certificates.ts";
import { startContention } from "../../support/contention-load.ts";
import type { RedisServer } from "../../support/stores/redis.ts";
import { startRedis, tlsArguments, userArguments } from "../../support/stores/redis.ts";
import type { RedisCluster } from "../../support/stores/redis-cluster.ts";
import { startRedisCluster } from "../../support/stores/redis-cluster.ts";
import { CLUSTER_PERMISSIONS, LEAST_PERMISSIONS } from "../../support/stores/redis-permissions.ts";
import type { RedisSentinels } from "../../support/stores/redis-sentinel.ts";
import { startRedisSentinels } from "../../support/stores/redis-sentinel.ts";

const USER_OPTIONS = ["~holdfast:*", "&holdfast:*"];
const folder = mkdtempSync(join(tmpdir(), "holdfast-redis-tls-"));
let tls: CertificateFiles;
beforeAll(() => {
  const issuer = createAuthority();
  tls = writeCertificate(folder, issuer.issue(["127.0.0.1"]), issuer);
});
afterAll(() => rmSync(folder, { recursive: true }));

describe("a Cluster over TLS, as a user with the least rights", () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    const settings = userArguments([...USER_OPTIONS, ...LEAST_PERMISSIONS, ...CLUSTER_PERMISSIONS]);
    cluster = await startRedisCluster(3, false, { tls, settings });
  }, 180_000);
  afterAll(() => cluster.stop());

  const byUrl = (login = "app:pw@", query = `?ca=${tls.ca}`, options: object = {}): Promise<Locks> =>
    connect(`rediss+cluster://${login}${cluster.tlsPorts.map((port) => `127.0.0.1:${port}`).join(",")}${query}`, {
      order: "strict",
      ...options,
    });
  const byNodeRedis = (): Locks => {
    const createRedis = (): ReturnType<typeof createCluster> =>
      createCluster({
        rootNodes: cluster.tlsPorts.map((port) => ({ url: `rediss://127.0.0.1:${port}` })),
        defaults: { username: "app", password: "pw", socket: { tls: true, ca: readFileSync(tls.ca) } },
      });
    return createLocks(redis(createRedis), { order: "strict" });
  };

  test("locks are taken, awaited, handed off, listed and transferred, even while a slot moves", {
    timeout: 60_000,
  }, async () => {
    const clients = [await byUrl(), byNodeRedis()] as const;
    for (const key of ["one", "two", "three", "four", "five"]) {
      const lock = await clients[0].acquire(key);
      const next = clients[1].acquire(key, { wait: "10s" });
      expect((await clients[1].list("")).map(({ locks }) => locks[0].key)).toContain(key);
      await lock.release();
      const reference = await (await next).detach();
      await (await clients[0].attach(reference)).release();
    }
    const key = "moving";
    const slot = toHashSlot(`holdfast:3:{${toBucket(key)}}:n`);
    {
      await using load = startContention(clients, key, 3);
      await load.waitForProgress();
      await cluster.move(slot, ((await cluster.masterOf(slot)) + 1) % 3);
      await load.waitForProgress();
      await load.waitUntilAllServed();
      expect(load.overlaps).toBe(0);
    }
    for (const locks of clients) await locks.close();
  });

  test("a client without the certificate, or without the password, is refused", async () => {
    await expect(byUrl("app:pw@", "", { connectTimeout: "2s" })).rejects.toMatchObject({ name: "StoreError" });
    await expect(byUrl("app:no@", undefined, { connectTimeout: "2s" })).rejects.toThrow();
  });
});

describe("Sentinels over TLS, with a user with the least rights", () => {
  let servers: RedisSentinels;
  beforeAll(async () => {
    servers = await startRedisSentinels(5_000, {
      tls,
      settings: userArguments([...USER_OPTIONS, ...LEAST_PERMISSIONS, "+wait"]),
    });
  }, 180_000);
  afterAll(() => servers.stop());

  test("a lock is taken and handed off, also with a replica to wait for, and both work again after the roles change", {
    timeout: 60_000,
  }, async () => {
    const addresses = servers.sentinels.map(({ host, tlsPort }) => `${host}:${tlsPort}`).join(",");
    const url = `rediss+sentinel://app:pw@${addresses}/${servers.name}?ca=${tls.ca}`;
    const clients = [await connect(url, { order: "strict" }), await connect(`${url}&replicas=1`, { order: "strict" })];
    {
      await using load = startContention(clients, "key", 2);
      await load.waitForProgress();
      if (process.env.HOLDFAST_LONG === "1") await servers.admin[0].call("FAILOVER");
      await load.waitForProgress(30_000);
      await load.waitUntilAllServed();
      expect(load.overlaps).toBe(0);
    }
    for (const locks of clients) await locks.close();
  });
});

describe("a single server over TLS, as a user with rights of its own", () => {
  let server: RedisServer;
  let port = 0;
  let ca = "";
  beforeAll(async () => {
    const issuer = createAuthority();
    const files = writeCertificate(mkdtempSync(join(folder, "single-")), issuer.issue(["localhost"]), issuer);
    ca = files.ca;
    port = await freePort();
    const user = ["--user", "default", "off", ...userArguments([...USER_OPTIONS, "+@all", "-@admin"])];
    server = await startRedis([...tlsArguments(port, files), ...user]);
  }, 120_000);
  afterAll(() => server.stop());
  const url = (login: string, query = `?ca=${ca}&servername=localhost`): string =>
    `rediss://${login}127.0.0.1:${port}${query}`;

  test("a lock is taken, awaited and handed off", async () => {
    const [client, other] = [await connect(url("app:pw@")), await connect(url("app:pw@"))];
    const lock = await client.acquire("key");
    const next = other.acquire("key", { wait: "5s" });
    expect(await lock.release()).toBe(true);
    expect(await (await next).release()).toBe(true);
    await client.close();
    await other.close();
  });

  test("a client without the certificate, or without the password, is refused", async () => {
    await expect(connect(url("app:pw@", ""))).rejects.toThrow(/TLS failed \(.*certificate\)/);
    await expect(connect(url("app:no@"))).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED" });
  });
});
