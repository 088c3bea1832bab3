/**
 * The commissioned lock by one exclusive node: whoever makes it holds, others fail at once. There a crash left the node,
 * and nobody ever got in again.
 */

import { expect, test } from "vitest";
import { childrenOf } from "../../src/drivers/zookeeper/client/recipes.ts";
import { zookeeper } from "../../src/drivers/zookeeper/driver.ts";
import type { Locks } from "../../src/index.ts";
import { createLocks } from "../../src/index.ts";
import { place } from "../cli/command.ts";
import { tcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/wait-for.ts";
import { zookeeperScene } from "../support/zookeeper-scene.ts";

const here = place();
const WITHIN = 30_000;
/** Of the one that is killed. */
const SESSION_MS = 4_000;
const KEY = "/locks/report";
const scene = zookeeperScene();

function locksOf(address = scene.server.address): Locks {
  const locks = createLocks(zookeeper({ servers: [address], sessionMs: 20_000 }), { ttl: "session" });
  scene.clients.push(locks);
  return locks;
}

function nodes(): Promise<readonly string[]> {
  return childrenOf(scene.zk, KEY);
}

test("one holds it, others are told at once that it is busy, and nothing is left of their tries", async () => {
  const [one, others] = [locksOf(), Array.from({ length: 8 }, () => locksOf())];
  const lock = await one.acquire(KEY);
  const tries = await Promise.all(others.map((locks) => locks.tryAcquire(KEY)));
  expect(tries).toEqual(others.map(() => null));
  expect(await nodes()).toHaveLength(1);
  await expect(others[0]?.acquire(KEY, { wait: 0 })).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
  expect(await nodes()).toHaveLength(1);
  await lock.release();
  expect(await nodes()).toEqual([]);
  await using next = await others[0]?.tryAcquire(KEY);
  expect(next).not.toBeNull();
});

test("of many who try at once on a free key exactly one is in", async () => {
  const all = Array.from({ length: 8 }, () => locksOf());
  await Promise.all(all.map((locks) => locks.list("/")));
  for (let round = 0; round < 10; round++) {
    const taken = (await Promise.all(all.map((locks) => locks.tryAcquire(KEY)))).filter((lock) => lock !== null);
    expect(taken).toHaveLength(1);
    await Promise.all(taken.map((lock) => lock.release()));
    expect(await nodes()).toEqual([]);
  }
});

test("a try whose connection is cut at any byte leaves no node while its session lives", async () => {
  await using proxy = await tcpProxy(scene.server.address);
  const [holder, cut] = [locksOf(), locksOf(proxy.address as { host: string; port: number })];
  const lock = await holder.acquire(KEY);
  const kept = await cut.acquire("kept");
  for (let bytes = 1; bytes < 160; bytes += 23) {
    proxy.down.cutAfter(bytes);
    expect(await cut.tryAcquire(KEY).catch(() => null)).toBeNull();
    await until(async () => (await nodes()).length === 1, { within: WITHIN, what: "no node but the holder's" });
  }
  proxy.down.cutAfter(Number.POSITIVE_INFINITY);
  kept.throwIfLost();
  await lock.release();
  expect(await nodes()).toEqual([]);
  await cut.close();
}, 60_000);

test("a holder that is killed leaves a node for no longer than its session, and then somebody else is in", async () => {
  const { host, port } = scene.server.address;
  const url = `zookeeper://${host}:${port}?sessionMs=${SESSION_MS}`;
  const held = here.start(["run", KEY, "--url", url, "--", "sleep", "60"]);
  await until(async () => (await nodes()).length === 1, { within: WITHIN, what: "the holder" });
  const busy = await here.run(["run", KEY, "--url", url, "--wait", "0", "--", "true"]);
  expect(busy.code).toBe(124);
  process.kill(held.pid, "SIGKILL");
  await until(async () => (await nodes()).length === 0, { within: WITHIN, what: "its node to go" });
  await using next = await locksOf().tryAcquire(KEY);
  expect(next).not.toBeNull();
}, 60_000);

test("acquire on the command line says at once that nothing can be carried away from this store", async () => {
  const { host, port } = scene.server.address;
  const url = `zookeeper://${host}:${port}`;
  const { code, err } = await here.run(["acquire", KEY], { env: { HOLDFAST_URL: url } });
  expect(code).toBe(64);
  expect(err).toContain(url);
  expect(err).toContain("only as long as its client's session lives");
  expect(err).toContain("holdfast run");
  expect(await nodes()).toEqual([]);
});

test("doctor tells of this store what matters to its locks", async () => {
  const { host, port } = scene.server.address;
  const { code, out } = await here.run(["doctor", "--url", `zookeeper://${host}:${port}?sessionMs=90000`]);
  expect(code).toBe(0);
  expect(out).toMatch(/one server alone/);
  expect(out).toMatch(/40000 ms, although 90000 ms were asked for/);
  expect(out).toMatch(/world:anyone:rwcda/);
  expect(out).toMatch(/acquire and release take/);
});
