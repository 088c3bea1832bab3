/** A relay in front of ZooKeeper: its clients' claims belong to its own session, which lives longer than they do. */

import { randomUUID } from "node:crypto";
import { afterEach, expect, test } from "vitest";
import { server as serverDriver } from "../../src/drivers/server/driver.ts";
import { zookeeper } from "../../src/drivers/zookeeper/driver.ts";
import type { Locks } from "../../src/index.ts";
import { createLocks } from "../../src/index.ts";
import type { Server } from "../../src/server/serve.ts";
import { serve } from "../../src/server/serve.ts";
import type { Driver } from "../../src/spi/driver.ts";
import { tcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/wait-for.ts";
import { zookeeperScene } from "../support/zookeeper-scene.ts";

type Address = { readonly host: string; readonly port: number };
const SESSION_MS = 2_000;
const scene = zookeeperScene();

const open: { close(): Promise<void> }[] = [];
// not waited for: a client whose server is gone waits a while for the answers to its releases
afterEach(() => {
  for (const one of open.splice(0)) void one.close();
});

function direct(address: Address = scene.server.address): Driver {
  return zookeeper({ servers: [address], sessionMs: SESSION_MS });
}

function client(driver: Driver): Locks {
  const locks = createLocks(driver, { handoffs: 1 });
  open.push(locks);
  return locks;
}

function portOf({ addresses: [address = ""] }: Server): number {
  return Number(address.slice(address.lastIndexOf(":") + 1));
}

async function relay(driver: Driver): Promise<{ it: Server; locks: () => Locks }> {
  const it = await serve({ listen: "tcp://127.0.0.1:0", driver, log: () => undefined });
  open.push(it);
  return { it, locks: () => client(serverDriver({ port: portOf(it) })) };
}

test("when a relay ends nobody gets a lock whose holder still believes in it", async () => {
  const key = randomUUID();
  const { it, locks } = await relay(direct());
  const lock = await locks().acquire(key);
  const other = client(direct());
  const next = other.acquire(key, { wait: "30s" });
  const busy = `behind ${key}`;
  await other.acquire(busy);
  locks()
    .acquire(busy)
    .catch(() => undefined);
  for (const one of [key, busy]) {
    await until(async () => (await other.list(one)).length === 2, { within: 5_000, what: "the place behind it" });
  }
  await it.close();
  // who only waited is in nobody's way
  expect(await other.list(busy)).toHaveLength(1);
  const granted = await next;
  expect(lock.remainingMs).toBe(0);
  expect(granted.token).toBeGreaterThan(lock.token);
  await granted.release();
}, 30_000);

test("a lease through a relay ends with the session of the relay's, not of ours", async () => {
  const key = randomUUID();
  const toStore = await tcpProxy(scene.server.address);
  const { it } = await relay(direct(toStore.address as Address));
  const toRelay = await tcpProxy({ host: "127.0.0.1", port: portOf(it) });
  open.push(toStore, toRelay);
  const lock = await client(serverDriver(toRelay.address as Address)).acquire(key);
  const next = client(direct()).acquire(key, { wait: "30s" });
  // as if the relay's machine were gone
  for (const { up, down } of [toStore, toRelay]) {
    up.pause();
    down.pause();
  }
  const granted = await next;
  expect(lock.remainingMs).toBe(0);
  expect(granted.token).toBeGreaterThan(lock.token);
  await granted.release();
}, 30_000);
