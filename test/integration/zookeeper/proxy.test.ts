/** A proxy in front of ZooKeeper: its clients' claims belong to its own session, which lives longer than they do. */

import { randomUUID } from "node:crypto";
import { afterEach, expect, test } from "vitest";
import { lockServer } from "../../../src/drivers/server/driver.ts";
import { zookeeper } from "../../../src/drivers/zookeeper/driver.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { Server } from "../../../src/server/server.ts";
import { serve } from "../../../src/server/server.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";
import { tcpProxy } from "../../support/tcp-proxy.ts";
import { until } from "../../support/until.ts";

type Address = { readonly host: string; readonly port: number };
const SESSION_MS = 2_000;
const fixture = zookeeperFixture();

const openResources: { close(): Promise<void> }[] = [];
// not awaited: a client without a server waits a while for the answers to its releases
afterEach(() => {
  for (const resource of openResources.splice(0)) void resource.close();
});

function openDirect(address: Address = fixture.server.address): Driver {
  return zookeeper({ servers: [address], sessionMs: SESSION_MS });
}

function openClient(driver: Driver): Locks {
  const locks = createLocks(driver, { order: "strict" });
  openResources.push(locks);
  return locks;
}

function portOf({ addresses: [address = ""] }: Server): number {
  return Number(address.slice(address.lastIndexOf(":") + 1));
}

async function startProxyServer(driver: Driver): Promise<{ it: Server; locks: () => Locks }> {
  const server = await serve({ listen: "holdfast://127.0.0.1:0", driver, log: () => undefined });
  openResources.push(server);
  return { it: server, locks: () => openClient(lockServer({ port: portOf(server) })) };
}

test("when a proxy ends no lock is granted while its holder still relies on it", async () => {
  const key = randomUUID();
  const { it, locks } = await startProxyServer(openDirect());
  const lock = await locks().acquire(key);
  const otherLocks = openClient(openDirect());
  const next = otherLocks.acquire(key, { wait: "30s" });
  const busyKey = `behind ${key}`;
  await otherLocks.acquire(busyKey);
  locks()
    .acquire(busyKey)
    .catch(() => undefined);
  for (const name of [key, busyKey]) {
    await until(async () => (await otherLocks.list(name)).length === 2, { within: 5_000, what: "the place behind it" });
  }
  await it.close();
  // a mere waiter blocks no other claim
  expect(await otherLocks.list(busyKey)).toHaveLength(1);
  const granted = await next;
  expect(lock.remainingMs).toBe(0);
  expect(granted.token).toBeGreaterThan(lock.token);
  await granted.release();
}, 30_000);

test("a lease through a proxy ends with the session of the proxy, not of the client", async () => {
  const key = randomUUID();
  const toStore = await tcpProxy(fixture.server.address);
  const { it } = await startProxyServer(openDirect(toStore.address as Address));
  const toRelay = await tcpProxy({ host: "127.0.0.1", port: portOf(it) });
  openResources.push(toStore, toRelay);
  const lock = await openClient(lockServer(toRelay.address as Address)).acquire(key);
  const next = openClient(openDirect()).acquire(key, { wait: "30s" });
  // as if the proxy's machine were gone
  for (const { toTarget, toClient } of [toStore, toRelay]) {
    toTarget.pause();
    toClient.pause();
  }
  const granted = await next;
  expect(lock.remainingMs).toBe(0);
  expect(granted.token).toBeGreaterThan(lock.token);
  await granted.release();
}, 30_000);
