/**
 * The commissioned lock across JVMs (Curator's recipe): many processes contend below a root such as /mylock, the lowest
 * number holds, each waits for its predecessor alone. And its unfair variant, which here keeps no place and stays safe.
 * That Curator itself and ours exclude each other is test/zookeeper/curator.test.ts.
 */

import { expect, test } from "vitest";
import type { ZooKeeperDriverOptions } from "../../src/drivers/zookeeper/driver.ts";
import { exponential, zookeeper } from "../../src/drivers/zookeeper/driver.ts";
import type { Lock, Locks } from "../../src/index.ts";
import { createLocks } from "../../src/index.ts";
import { tcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/wait-for.ts";
import { zookeeperScene } from "../support/zookeeper-scene.ts";

const WITHIN = 20_000;
const SESSION_MS = 6_000;
const KEY = "/mylock";
const scene = zookeeperScene();

/** A process's locks: a client, and so a session, of its own. */
function locksOf(options: Partial<ZooKeeperDriverOptions> = {}): Locks {
  const driver = zookeeper({ servers: [scene.server.address], sessionMs: SESSION_MS, ...options });
  const locks = createLocks(driver, { ttl: "session", handoffs: 1 });
  scene.clients.push(locks);
  return locks;
}

const nodes = async (): Promise<readonly string[]> => (await scene.zk.children(KEY)).names;

/** So many stand in line. */
const inLine = (count: number): Promise<unknown> =>
  until(async () => (await nodes()).length === count, { within: WITHIN, what: `${count} in line` });

test("ten contenders, started in order, are granted in order, and one at a time", async () => {
  const gate = await locksOf().acquire(KEY);
  const order: number[] = [];
  let inside = 0;
  const contenders: Promise<void>[] = [];
  for (let contender = 0; contender < 10; contender++) {
    const locks = locksOf();
    contenders.push(
      locks.using(KEY, async () => {
        expect(++inside).toBe(1);
        order.push(contender);
        await scene.zk.sync("/");
        inside--;
      }),
    );
    await inLine(contender + 2);
  }
  await gate.release();
  await Promise.all(contenders);
  expect(order).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  expect(await nodes()).toEqual([]);
});

test("each waiter watches its predecessor and nobody else; nodes are ephemeral, numbered and bear an id", async () => {
  const held = await locksOf().acquire(KEY);
  const waits: Promise<Lock>[] = [];
  for (let contender = 1; contender < 10; contender++) {
    waits.push(locksOf().acquire(KEY));
    await inLine(contender + 1);
  }
  const line = [...(await nodes())].sort((one, other) => one.slice(-10).localeCompare(other.slice(-10)));
  for (const name of line) expect(name).toMatch(/^_c_[0-9a-z]{26}-lock-\d{10}$/i);
  const owners = await Promise.all(line.map(async (name) => (await scene.zk.exists(`${KEY}/${name}`))?.ephemeralOwner));
  expect(new Set(owners).size, "a session each").toBe(10);
  // "wchp" lists, below each path, the sessions that watch it
  const watchers = async (): Promise<number[]> => {
    const [, ...blocks] = `\n${await scene.server.ask("wchp")}`.split(/\n(?=\/)/);
    const counts = new Map(
      blocks.map((block) => block.trim().split("\n")).map(([path, ...rest]) => [path, rest.length]),
    );
    return line.map((name) => counts.get(`${KEY}/${name}`) ?? 0);
  };
  // the first is watched by its holder, too; the last by nobody
  await until(async () => `${await watchers()}` === "2,1,1,1,1,1,1,1,1,0", { within: WITHIN, what: "one watch each" });
  await held.release();
  for (const wait of waits) await (await wait).release();
});

test("a connection that is lost puts a lock in jeopardy; only the end of the session loses it", async () => {
  await using proxy = await tcpProxy(scene.server.address);
  const rests: number[] = [];
  const backoff = exponential(50, 200);
  const locks = locksOf({
    servers: [proxy.address as { host: string; port: number }],
    retry(rounds) {
      rests.push(rounds);
      return backoff(rounds);
    },
  });
  const told: string[] = [];
  const lock = await locks.acquire(KEY);
  let goneAt = 0;
  await scene.zk.exists(`${KEY}/${(await nodes())[0]}`, () => {
    goneAt = performance.now();
  });
  for (const event of ["jeopardy", "restored", "lost"] as const) locks.on(event, () => told.push(event));
  proxy.refuse(true);
  proxy.reset();
  await until(() => rests.length >= 3, { within: WITHIN, what: "three tries" });
  expect(told).toEqual(["jeopardy"]);
  proxy.refuse(false);
  await until(() => told.includes("restored"), { within: WITHIN, what: "the connection to be back" });
  expect(told).toEqual(["jeopardy", "restored"]);
  lock.throwIfLost();
  proxy.refuse(true);
  proxy.reset();
  const endsAt = performance.now() + lock.remainingMs;
  await until(() => lock.signal.aborted, { within: WITHIN, what: "the session to end by our clock" });
  expect(told).toEqual(["jeopardy", "restored", "jeopardy", "lost"]);
  await until(() => goneAt > 0, { within: WITHIN, what: "its end at the servers" });
  expect(goneAt, "the servers had it for longer").toBeGreaterThan(endsAt);
  proxy.refuse(false);
  await locks.close();
}, 60_000);

test("without places who comes later may be first, and two are never inside", async () => {
  const [holder, early, late] = [locksOf({ fair: false }), locksOf({ fair: false }), locksOf({ fair: false })];
  let inversions = 0;
  let inside = 0;
  for (let round = 0; round < 30 && inversions === 0; round++) {
    const lock = await holder.acquire(KEY);
    const order: string[] = [];
    const enter = async (locks: Locks, who: string): Promise<void> => {
      await locks.using(KEY, async () => {
        expect(++inside).toBe(1);
        order.push(who);
        await scene.zk.sync("/");
        inside--;
      });
    };
    const before = (await scene.zk.children(KEY)).stat.cversion;
    const first = enter(early, "early");
    // it came and left the line again
    await until(async () => (await scene.zk.children(KEY)).stat.cversion >= before + 2, {
      within: WITHIN,
      what: "its try",
    });
    await lock.release();
    await Promise.all([first, enter(late, "late")]);
    if (order[0] === "late") inversions++;
  }
  expect(inversions).toBe(1);
}, 60_000);
