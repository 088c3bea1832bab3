/**
 * The lock by one exclusive node: the client that creates it holds, others fail at once. In the original a crash left the
 * node, and the lock was never free again.
 */

import { expect, test } from "vitest";
import { listChildren } from "../../../../src/drivers/zookeeper/client/helpers.ts";
import { zookeeper } from "../../../../src/drivers/zookeeper/driver.ts";
import type { Locks } from "../../../../src/index.ts";
import { createLocks } from "../../../../src/index.ts";
import { until } from "../../../../src/testing/until.ts";
import { tcpProxy } from "../../../../src/torture/tcp-proxy.ts";
import { cliSandbox } from "../../../support/cli-sandbox.ts";
import { zookeeperFixture } from "../../../support/stores/zookeeper-fixture.ts";

const sandbox = cliSandbox();
const TIMEOUT_MS = 30_000;
/** The session of the client that is killed. */
const SESSION_MS = 4_000;
const KEY = "/locks/report";
const fixture = zookeeperFixture();

function openLocks(address = fixture.server.address): Locks {
  const locks = createLocks(zookeeper({ servers: [address], sessionMs: 20_000 }), { ttl: "session" });
  fixture.clients.push(locks);
  return locks;
}

function queueNodes(): Promise<readonly string[]> {
  return listChildren(fixture.observer, KEY);
}

test("one client holds it, others learn at once that it is busy, and their tries leave nothing", async () => {
  const [client, others] = [openLocks(), Array.from({ length: 8 }, () => openLocks())];
  const lock = await client.acquire(KEY);
  const results = await Promise.all(others.map((locks) => locks.tryAcquire(KEY)));
  expect(results).toEqual(others.map(() => null));
  expect(await queueNodes()).toHaveLength(1);
  await expect(others[0]?.acquire(KEY, { wait: 0 })).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
  expect(await queueNodes()).toHaveLength(1);
  await lock.release();
  expect(await queueNodes()).toEqual([]);
  await using next = await others[0]?.tryAcquire(KEY);
  expect(next).not.toBeNull();
});

test("of many tries at once on a free key exactly one succeeds", async () => {
  const clients = Array.from({ length: 8 }, () => openLocks());
  await Promise.all(clients.map((locks) => locks.list("/")));
  for (let round = 0; round < 10; round++) {
    const grantedLocks = (await Promise.all(clients.map((locks) => locks.tryAcquire(KEY)))).filter(
      (lock) => lock !== null,
    );
    expect(grantedLocks).toHaveLength(1);
    await Promise.all(grantedLocks.map((lock) => lock.release()));
    expect(await queueNodes()).toEqual([]);
  }
});

test("a try whose connection is cut at any byte leaves no node while its session lives", async () => {
  await using proxy = await tcpProxy(fixture.server.address);
  const [holder, cutClient] = [openLocks(), openLocks(proxy.address as { host: string; port: number })];
  const lock = await holder.acquire(KEY);
  const keptLock = await cutClient.acquire("kept");
  for (let bytes = 1; bytes < 160; bytes += 23) {
    proxy.toClient.cutAfter(bytes);
    expect(await cutClient.tryAcquire(KEY).catch(() => null)).toBeNull();
    await until(async () => (await queueNodes()).length === 1, {
      within: TIMEOUT_MS,
      what: "no node but the holder's",
    });
  }
  proxy.toClient.cutAfter(Number.POSITIVE_INFINITY);
  keptLock.throwIfLost();
  await lock.release();
  expect(await queueNodes()).toEqual([]);
  await cutClient.close();
}, 60_000);

test("a killed holder leaves its node no longer than its session, and then another client is granted", async () => {
  const { host, port } = fixture.server.address;
  const url = `zookeeper://${host}:${port}?sessionMs=${SESSION_MS}`;
  const held = sandbox.start(["run", KEY, "--url", url, "--", "sleep", "60"]);
  await until(async () => (await queueNodes()).length === 1, { within: TIMEOUT_MS, what: "the holder" });
  const busyRun = await sandbox.run(["run", KEY, "--url", url, "--wait", "0", "--", "true"]);
  expect(busyRun.code).toBe(124);
  process.kill(held.pid, "SIGKILL");
  await until(async () => (await queueNodes()).length === 0, { within: TIMEOUT_MS, what: "its node to go" });
  await using next = await openLocks().tryAcquire(KEY);
  expect(next).not.toBeNull();
}, 60_000);

test("acquire on the command line reports at once that this store's locks cannot be detached", async () => {
  const { host, port } = fixture.server.address;
  const url = `zookeeper://${host}:${port}`;
  const { code, err } = await sandbox.run(["acquire", KEY], { env: { HOLDFAST_URL: url } });
  expect(code).toBe(64);
  expect(err).toContain(url);
  expect(err).toContain("only as long as the session of its client");
  expect(err).toContain("holdfast run");
  expect(await queueNodes()).toEqual([]);
});

test("doctor reports the store's settings that matter to its locks", async () => {
  const { host, port } = fixture.server.address;
  const { code, out } = await sandbox.run(["doctor", "--url", `zookeeper://${host}:${port}?sessionMs=90000`]);
  expect(code).toBe(0);
  expect(out).toMatch(/a single server/);
  expect(out).toMatch(/40000 ms, although 90000 ms were requested/);
  expect(out).toMatch(/world:anyone:rwcda/);
  expect(out).toMatch(/acquire and release take/);
});
