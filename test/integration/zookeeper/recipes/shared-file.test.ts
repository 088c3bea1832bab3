/**
 * A ZooKeeper lock with a local lock in front of it: its behaviour, and each fault of the original. Its use case,
 * one file with many readers and writers, is examples/shared-file.
 */

import { expect, test } from "vitest";
import { zookeeper } from "../../../../src/drivers/zookeeper/driver.ts";
import type { Lock, Locks, LocksOptions } from "../../../../src/index.ts";
import { createLocks } from "../../../../src/index.ts";
import { until } from "../../../../src/testing/until.ts";
import { builtFile } from "../../../support/built-file.ts";
import { cliSandbox } from "../../../support/cli-sandbox.ts";
import { zookeeperFixture } from "../../../support/stores/zookeeper-fixture.ts";

const sandbox = cliSandbox();
const TIMEOUT_MS = 20_000;
/** Long, so that an early reaction cannot come from a periodic recheck. */
const SESSION_MS = 40_000;
/** "At once", on a machine that is busy with other things. */
const IMMEDIATE_MS = 8_000;
const fixture = zookeeperFixture({ reapMs: 500 });
let count = 0;

/** A process's locks: a client with its own session. */
function openLocks(options: LocksOptions = {}): Locks {
  const driver = zookeeper({ servers: [fixture.server.address], root: "/s3", sessionMs: SESSION_MS });
  const locks = createLocks(driver, { ttl: "session", ...options });
  fixture.clients.push(locks);
  return locks;
}

/** A key for this test alone, and the path of its queue. */
function nextKey(): [string, string] {
  const name = `key-${++count}`;
  return [name, `/s3/${name}`];
}

const queueNodes = async (folder: string): Promise<number> => (await fixture.observer.children(folder)).names.length;

test("the article's case on ZooKeeper: many readers and writers of one file, in 8 processes", async () => {
  const { host, port } = fixture.server.address;
  const program = [process.execPath, builtFile("build/examples/shared-file/main.js")] as const;
  const env = { HOLDFAST_URL: `zookeeper://${host}:${port}?root=/shared&sessionMs=${SESSION_MS}` };
  const startedAt = performance.now();
  const { code, out, err } = await sandbox.startProgram(program, { cwd: sandbox.folder, env }).ended;
  expect({ code, err }).toEqual({ code: 0, err: "" });
  expect(out.trimEnd().split("\n")).toEqual([
    "30 writes by 3 processes: the file has version 30",
    "50 reads by 5 processes: 0 of them saw half a write",
    "most readers at once: several",
  ]);
  console.log(`figure: shared file on ZooKeeper: ${(performance.now() - startedAt).toFixed(0)} ms with 8 processes`);
});

test("requests of one process queue locally: one of them waits at ZooKeeper, and another process is not starved", async () => {
  const [name, folder] = nextKey();
  const [ownClient, other] = [openLocks(), openLocks()];
  const first = await other.acquire(name);
  const order: string[] = [];
  const turn = async (locks: Locks, clientName: string): Promise<void> => {
    const lock = await locks.acquire(name);
    order.push(clientName);
    await lock.release();
  };
  const ownTurns = Array.from({ length: 200 }, () => turn(ownClient, "mine"));
  await until(async () => (await queueNodes(folder)) === 2, { within: TIMEOUT_MS, what: "a place of mine" });
  const otherTurn = turn(other, "other");
  await ownClient.list();
  expect(await queueNodes(folder), "200 requests, one place; and the other's").toBeLessThanOrEqual(3);
  await first.release();
  await Promise.all([...ownTurns, otherTurn]);
  expect(order).toHaveLength(201);
  expect(order.indexOf("other"), "at most one turn of 64 before it").toBeLessThanOrEqual(64);
  expect(await queueNodes(folder)).toBe(0);
});

test("a flow that holds the lock enters no queue for it again; it is free after the outermost release", async () => {
  const [name, folder] = nextKey();
  const [locks, other] = [openLocks(), openLocks()];
  await locks.using(name, async (outer) => {
    await locks.using(name, async (inner) => {
      expect(locks.holds(name)).toBe(true);
      expect(inner.token).toBe(outer.token);
      expect(await queueNodes(folder)).toBe(1);
    });
    expect(locks.holds(name)).toBe(true);
    expect(await other.tryAcquire(name), "after the inner one").toBeNull();
  });
  expect(locks.holds(name)).toBe(false);
  const lock = await other.tryAcquire(name);
  expect(await lock?.release()).toBe(true);
});

test("a wait that timed out leaves no node in the queue, and no grant is made to it", async () => {
  const [name, folder] = nextKey();
  const [holder, waiter, next] = [openLocks(), openLocks(), openLocks()];
  const lock = await holder.acquire(name);
  await expect(waiter.acquire(name, { wait: 300 })).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
  await until(async () => (await queueNodes(folder)) === 1, { within: IMMEDIATE_MS, what: "its place to go" });
  await lock.release();
  const granted = await next.tryAcquire(name);
  expect(granted).not.toBeNull();
  await granted?.release();
});

test("a request never takes a node of an earlier one of its session for its own", async () => {
  const [name, folder] = nextKey();
  // every request creates its own node
  const locks = openLocks({ order: "strict" });
  const lock = await locks.acquire(name);
  await expect(locks.acquire(name, { wait: 300 }), "beside the holder").rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
  const waiting = locks.acquire(name);
  await until(async () => (await queueNodes(folder)) === 2, { within: TIMEOUT_MS, what: "two nodes of one session" });
  await lock.release();
  const second = await waiting;
  expect(second.token).toBeGreaterThan(lock.token);
  expect(await second.release()).toBe(true);
});

test("a release between a waiter's list and its watch is noticed at once", async () => {
  const [name] = nextKey();
  const [client, other] = [openLocks({ order: "strict" }), openLocks({ order: "strict" })];
  let longest = 0;
  let held: Lock = await client.acquire(name);
  for (let turn = 0; turn < 150; turn++) {
    const startedAt = performance.now();
    const next = (turn % 2 === 0 ? other : client).acquire(name);
    // earlier or later than the list, the watch and the answers of both
    const spinCount = turn * 40;
    for (let spin = 0; spin < spinCount; spin++) if (spin % 400 === 0) await Promise.resolve();
    if (turn % 3 > 0) await fixture.observer.exists("/s3");
    await held.release();
    held = await next;
    longest = Math.max(longest, performance.now() - startedAt);
  }
  await held.release();
  expect(longest).toBeLessThan(IMMEDIATE_MS);
});

test("nothing is kept for an unused key: the server removes its node", async () => {
  const locks = openLocks();
  const keys = Array.from({ length: 50 }, nextKey);
  await Promise.all(keys.map(([name]) => locks.using(name, () => undefined)));
  for (const [, folder] of keys) {
    await expect.poll(() => fixture.observer.exists(folder), { timeout: TIMEOUT_MS }).toBe(null);
  }
  // and it is as usable as before
  await Promise.all(keys.map(([name]) => locks.using(name, () => undefined)));
});

test("all locks of a process are released at once, and it stays usable", async () => {
  const [locks, other] = [openLocks(), openLocks()];
  const names = Array.from({ length: 20 }, () => nextKey()[0]);
  const held = await Promise.all(names.map((name) => locks.acquire(name)));
  await locks.releaseAll();
  for (const lock of held) expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", reason: "released" });
  for (const name of names) await (await other.tryAcquire(name))?.release();
  const lock = await locks.tryAcquire(names[0] as string);
  expect(await lock?.release()).toBe(true);
});
