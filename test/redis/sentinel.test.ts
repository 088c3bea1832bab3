import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { redis } from "../../src/drivers/redis/driver.ts";
import type { Locks } from "../../src/index.ts";
import { connect, createLocks } from "../../src/index.ts";
import { load } from "../support/redis-load.ts";
import type { RedisSentinels } from "../support/services/redis-sentinel.ts";
import { startRedisSentinels } from "../support/services/redis-sentinel.ts";
import { until } from "../support/wait-for.ts";

let servers: RedisSentinels;
const prefix = randomUUID();
const all: Locks[] = [];

beforeAll(async () => {
  servers = await startRedisSentinels();
}, 180_000);
afterAll(async () => {
  for (const locks of all) await locks.close();
  await servers.stop();
});

/** Without it a client of ioredis stays with a master that has become a replica. */
const reconnectOnError = ({ message }: Error): boolean => message.startsWith("READONLY");

/** One by url, one by an instance of ioredis. */
async function clients(): Promise<readonly [Locks, Locks]> {
  const places = servers.sentinels.map(({ host, port }) => `${host}:${port}`).join(",");
  const byUrl = await connect(`redis+sentinel://${places}/${servers.name}?prefix=${prefix}`, {
    handoffs: 1,
    ttl: "10s",
  });
  const instance = new Redis({
    sentinels: [...servers.sentinels],
    name: servers.name,
    retryStrategy: () => 50,
    reconnectOnError,
  });
  instance.on("error", () => undefined);
  const given = createLocks(redis(instance, { prefix }), { handoffs: 1, ttl: "10s" });
  const closeBoth = given.close.bind(given);
  Object.assign(given, {
    close: async () => {
      await closeBoth();
      instance.disconnect();
    },
  });
  all.push(byUrl, given);
  return [byUrl, given];
}

const inboxes = async (server: 0 | 1): Promise<number> =>
  ((await servers.admin[server].pubsub("CHANNELS", `${prefix}:1:inbox:*`)) as string[]).length;

test("a master that makes its replica the master under load loses no waiter, and the inboxes follow", {
  timeout: 60_000,
}, async () => {
  const clientsThere = await clients();
  await using work = load(clientsThere, "key", 4);
  await work.goesOn();
  expect(await inboxes(0)).toBe(2);
  await servers.admin[0].call("FAILOVER");
  await work.goesOn(30_000);
  await work.everybodyServed();
  expect(work.overlaps).toBe(0);
  await until(async () => (await inboxes(1)) === 2, { within: 10_000, what: "the inboxes at the new master" });
  // as the Sentinels see it, so that the next test has a master to kill
  await until(
    async () =>
      /role:slave/.test(await servers.admin[0].info("replication")) &&
      /link_status:up/.test(await servers.admin[0].info("replication")),
    { within: 20_000, what: "the former master as a replica" },
  );
});

test("a master that is killed under load costs time and no waiter; what it had not passed on is said to be lost", {
  timeout: 60_000,
}, async () => {
  const [one, other] = await clients();
  await using work = load([one, other], "another key", 4);
  await work.goesOn();
  await servers.kill(1);
  await work.goesOn(40_000);
  await work.everybodyServed(30_000);
  await until(async () => (await inboxes(0)) >= 2, { within: 10_000, what: "the inboxes at the new master" });
});
