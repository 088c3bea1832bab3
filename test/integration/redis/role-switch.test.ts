// A master that becomes a replica, but leaves its connections open. What each client library does then stands in the guide,
// docs/guide/redis-failures.md.

import { Redis } from "ioredis";
import { Redis as Iovalkey } from "iovalkey";
import { createClient } from "redis";
import { expect, onTestFinished, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { redisFromUrl } from "../../../src/drivers/redis/from-url.ts";
import { createLocks } from "../../../src/index.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { redisUnavailableReason } from "../../support/stores/redis.ts";
import {
  demoteMaster,
  promoteReplica,
  startRedisPair,
  waitForReplicas,
} from "../../support/stores/redis-replication.ts";

const OPTIONS = { warn: () => undefined } as const;
/** From the first call that was refused until the master is found. */
const FOUND_MS = 2_000;

interface Row {
  readonly driver: Driver;
  readonly end?: () => unknown;
}

const ofClient = (client: Redis | Iovalkey): Row => ({
  driver: redis(client, OPTIONS),
  end: () => client.disconnect(),
});

/** The option of ioredis, and of iovalkey, for a client that the driver did not create. */
const LEAVING = { reconnectOnError: ({ message }: Error) => message.startsWith("READONLY") } as const;

const FINDING: Readonly<Record<string, (url: string) => Row>> = {
  "a url": (url) => ({ driver: redisFromUrl(url, OPTIONS) }),
  "a function of ioredis": (url) => ({ driver: redis(() => new Redis(url), OPTIONS) }),
  "a function of node-redis": (url) => ({ driver: redis(() => createClient({ url }), OPTIONS) }),
  "a function of iovalkey": (url) => ({ driver: redis(() => new Iovalkey(url), OPTIONS) }),
  "a client of ioredis with reconnectOnError": (url) => ofClient(new Redis(url, LEAVING)),
  "a client of iovalkey with reconnectOnError": (url) => ofClient(new Iovalkey(url, LEAVING)),
};

const STAYING: typeof FINDING = {
  "a client of ioredis": (url) => ofClient(new Redis(url)),
  "a client of iovalkey": (url) => ofClient(new Iovalkey(url)),
  "a client of node-redis": (url) => {
    const client = createClient({ url });
    client.on("error", () => undefined);
    return { driver: redis(client, OPTIONS), end: () => client.destroy() };
  },
};

const ROWS = { ...FINDING, ...STAYING };

test.skipIf(redisUnavailableReason() !== null)(
  "REPLICAOF with open connections",
  async () => {
    const [master, replica] = await startRedisPair();
    const target = { host: "127.0.0.1", port: master.port };
    const proxy = await tcpProxy(target);
    const masterAdmin = new Redis(master.port, "127.0.0.1");
    const replicaAdmin = new Redis(replica.port, "127.0.0.1");
    const url = `redis://127.0.0.1:${(proxy.address as { readonly port: number }).port}`;
    const clients = Object.entries(ROWS).map(([name, create]) => {
      const row = create(url);
      const locks = createLocks(row.driver, { ttl: "20s", order: "strict" });
      return { name, ...row, locks, other: createLocks(redisFromUrl(url, OPTIONS), { ttl: "20s" }) };
    });
    onTestFinished(async () => {
      const close = async ({ locks, other, end }: (typeof clients)[number]): Promise<void> => {
        await Promise.all([locks.close(), other.close()]);
        end?.();
      };
      await Promise.all(clients.map(close));
      masterAdmin.disconnect();
      replicaAdmin.disconnect();
      await proxy.close();
      await master.stop();
      await replica.stop();
    }, 60_000);
    const held = await Promise.all(clients.map(({ name, locks }) => locks.acquire(name)));
    const busy = await Promise.all(clients.map(({ name, other }) => other.acquire(`busy ${name}`)));
    const waiting = clients.map(({ name, locks }) => locks.acquire(`busy ${name}`, { wait: "5s" }).catch(String));

    await waitForReplicas(masterAdmin, 1);
    await promoteReplica(replicaAdmin);
    target.port = replica.port;
    await demoteMaster(masterAdmin, replica);
    const found = await Promise.all(
      clients.map(({ name, locks }) =>
        locks.acquire(`new ${name}`, { wait: FOUND_MS }).then(
          () => name,
          () => null,
        ),
      ),
    );
    expect(found.filter((name) => name !== null)).toEqual(Object.keys(FINDING));
    expect(await Promise.all(busy.map((lock) => lock.release()))).toEqual(busy.map(() => true));
    for (const [index, { name }] of clients.entries()) {
      if (!(name in FINDING)) continue;
      expect(await held[index]?.release()).toBe(true);
      expect(await waiting[index], name).toMatchObject({ keys: [`busy ${name}`] });
    }
    for (const { locks, name } of clients) {
      if (name in STAYING) await expect(locks.tryAcquire("key")).rejects.toThrow(/this is a replica \(READONLY\)/);
    }
  },
  60_000,
);

test.skipIf(redisUnavailableReason() !== null)(
  "an address that leads to a replica when the first request comes is left once it leads to the master",
  async () => {
    const [master, replica] = await startRedisPair();
    const target = { host: "127.0.0.1", port: replica.port };
    const proxy = await tcpProxy(target);
    const url = `redis://127.0.0.1:${(proxy.address as { readonly port: number }).port}`;
    const clients = Object.entries(FINDING).map(([name, create]) => {
      const row = create(url);
      return { name, ...row, locks: createLocks(row.driver, { ttl: "20s" }) };
    });
    onTestFinished(async () => {
      await Promise.all(clients.map(({ locks }) => locks.close()));
      for (const { end } of clients) end?.();
      await proxy.close();
      await master.stop();
      await replica.stop();
    }, 60_000);
    for (const { locks, name } of clients)
      await expect(locks.acquire(name)).rejects.toThrow(/this is a replica \(READONLY\)/);
    target.port = master.port;
    for (const { locks, name } of clients) {
      const isGranted = () =>
        locks.acquire(name).then(
          (lock) => lock.release(),
          () => false,
        );
      await until(isGranted, { within: 20_000, what: `a lock of ${name}` });
    }
  },
  60_000,
);
