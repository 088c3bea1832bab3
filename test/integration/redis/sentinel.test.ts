import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterEach, expect, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { redisFromUrl } from "../../../src/drivers/redis/from-url.ts";
import { toBucket } from "../../../src/drivers/redis/key-names.ts";
import type { Locks } from "../../../src/index.ts";
import { connect, createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import { startContention } from "../../support/contention-load.ts";
import { waitForReplicas } from "../../support/stores/redis-replication.ts";
import type { RedisSentinels } from "../../support/stores/redis-sentinel.ts";
import { startRedisSentinels } from "../../support/stores/redis-sentinel.ts";

let servers: RedisSentinels;
const prefix = randomUUID();
let activeClients: Locks[] = [];

afterEach(async () => {
  for (const locks of activeClients) await locks.close();
  activeClients = [];
  await servers.stop();
});

/** Without this option an ioredis client stays with a master that has become a replica. */
const reconnectOnError = ({ message }: Error): boolean => message.startsWith("READONLY");

function toUrl(): string {
  const addresses = servers.sentinels.map(({ host, port }) => `${host}:${port}`).join(",");
  return `redis+sentinel://${addresses}/${servers.name}?prefix=${prefix}`;
}

/** One by url, one by an instance of ioredis. */
async function openClients(): Promise<readonly [Locks, Locks]> {
  const byUrl = await connect(toUrl(), {
    order: "strict",
    ttl: "10s",
  });
  const instance = new Redis({
    sentinels: [...servers.sentinels],
    name: servers.name,
    retryStrategy: () => 50,
    reconnectOnError,
  });
  instance.on("error", () => undefined);
  const given = createLocks(redis(instance, { prefix }), { order: "strict", ttl: "10s" });
  const closeBoth = given.close.bind(given);
  Object.assign(given, {
    close: async () => {
      await closeBoth();
      instance.disconnect();
    },
  });
  activeClients.push(byUrl, given);
  return [byUrl, given];
}

const subscriberCount = async (server: 0 | 1): Promise<number> =>
  ((await servers.admin[server].pubsub("CHANNELS", `${prefix}:3:inbox:*`)) as string[]).length;

test("a planned switch of master and replica under load loses no waiter, and the inboxes follow", {
  timeout: 180_000,
}, async () => {
  // while roles change the master keeps the Sentinels' messages too, for as long as a replica takes to answer (1 s)
  servers = await startRedisSentinels(5_000);
  const clientsThere = await openClients();
  await using load = startContention(clientsThere, "key", 4);
  await load.waitForProgress();
  await until(async () => (await subscriberCount(0)) === 2, { within: 10_000, what: "the inboxes at the master" });
  await servers.admin[0].call("FAILOVER");
  await load.waitForProgress(30_000);
  await load.waitUntilAllServed();
  expect(load.overlaps).toBe(0);
  await until(async () => (await subscriberCount(1)) === 2, { within: 10_000, what: "the inboxes at the new master" });
});

test("a master killed under load costs time and no waiter, and unreplicated holds are reported as lost", {
  timeout: 180_000,
}, async () => {
  servers = await startRedisSentinels(1_000);
  const [client, other] = await openClients();
  // longer than a fail-over takes on a busy machine
  const keptLock = await client.acquire("kept", { ttl: "30s" });
  await using load = startContention([client, other], "key", 4);
  await load.waitForProgress();
  // no renewal of it may reach the replica again
  const forgottenLock = await client.acquire("forgotten", { ttl: "120s" });
  // a replica that has this connection's writes has all writes before them
  await servers.admin[0].set("mark", 1);
  expect(await servers.admin[0].wait(1, 2_000)).toBe(1);
  await servers.admin[1].config("SET", "replica-read-only", "no");
  expect(await servers.admin[1].hdel(`${prefix}:3:{${toBucket("forgotten")}}:h`, "k:forgotten")).toBe(1);
  await servers.kill(0);
  await load.waitForProgress(40_000);
  await load.waitUntilAllServed(30_000);
  await until(() => forgottenLock.signal.aborted, { within: 5_000, what: "word of the loss" });
  expect(keptLock.signal.aborted).toBe(false);
  expect(await keptLock.release()).toBe(true);
  await until(async () => (await subscriberCount(1)) === 2, { within: 10_000, what: "the inboxes at the new master" });
});

test("a master that is stopped, but whose connections stay open, is left for the one that Sentinels promote", {
  timeout: 60_000,
}, async () => {
  servers = await startRedisSentinels(1_000);
  const driver = redisFromUrl(toUrl(), { commandTimeoutMs: 1_000, warn: () => undefined });
  const client = createLocks(driver, { ttl: "20s" });
  activeClients.push(client);
  const lock = await client.acquire("kept");
  await waitForReplicas(servers.admin[0], 1);
  servers.signal(0, "SIGSTOP");
  try {
    // the first attempts reach the stopped master, which its Sentinels still name
    const next = await client.acquire("new", { wait: "20s" });
    expect(await next.release()).toBe(true);
    expect(await lock.release()).toBe(true);
  } finally {
    servers.signal(0, "SIGCONT");
  }
});
