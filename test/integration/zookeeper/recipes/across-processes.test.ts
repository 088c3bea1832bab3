/**
 * A lock across processes (Curator's recipe): many processes contend below a root such as /mylock, the lowest
 * number holds, each waits for its predecessor alone. And its unfair variant, which here has no queue and stays safe.
 * That Curator itself and Holdfast exclude each other is in test/integration/zookeeper/curator-mutex.test.ts.
 */

import { expect, test } from "vitest";
import type { ZooKeeperDriverOptions } from "../../../../src/drivers/zookeeper/driver.ts";
import { exponential, zookeeper } from "../../../../src/drivers/zookeeper/driver.ts";
import type { Lock, Locks } from "../../../../src/index.ts";
import { createLocks } from "../../../../src/index.ts";
import { until } from "../../../../src/testing/until.ts";
import { tcpProxy } from "../../../../src/torture/tcp-proxy.ts";
import { zookeeperFixture } from "../../../support/stores/zookeeper-fixture.ts";

const TIMEOUT_MS = 20_000;
const SESSION_MS = 6_000;
const KEY = "/mylock";
const fixture = zookeeperFixture();

/** A process's locks: a client with its own session. */
function openLocks(options: Partial<ZooKeeperDriverOptions> = {}): Locks {
  const driver = zookeeper({ servers: [fixture.server.address], sessionMs: SESSION_MS, ...options });
  const locks = createLocks(driver, { ttl: "session", order: "strict" });
  fixture.clients.push(locks);
  return locks;
}

const queueNodes = async (): Promise<readonly string[]> => (await fixture.observer.children(KEY)).names;

/** The number of claims in the queue. */
const waitForQueue = (count: number): Promise<unknown> =>
  until(async () => (await queueNodes()).length === count, { within: TIMEOUT_MS, what: `${count} in the queue` });

test("ten contenders, started in order, are granted in order, and one at a time", async () => {
  const gate = await openLocks().acquire(KEY);
  const order: number[] = [];
  let insideCount = 0;
  const contenders: Promise<void>[] = [];
  for (let contender = 0; contender < 10; contender++) {
    const locks = openLocks();
    contenders.push(
      locks.using(KEY, async () => {
        expect(++insideCount).toBe(1);
        order.push(contender);
        await fixture.observer.sync("/");
        insideCount--;
      }),
    );
    await waitForQueue(contender + 2);
  }
  await gate.release();
  await Promise.all(contenders);
  expect(order).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  expect(await queueNodes()).toEqual([]);
});

test("each waiter watches its predecessor alone; nodes are ephemeral, numbered and have an id", async () => {
  const held = await openLocks().acquire(KEY);
  const waits: Promise<Lock>[] = [];
  for (let contender = 1; contender < 10; contender++) {
    waits.push(openLocks().acquire(KEY));
    await waitForQueue(contender + 1);
  }
  const line = [...(await queueNodes())].sort((one, other) => one.slice(-10).localeCompare(other.slice(-10)));
  for (const name of line) expect(name).toMatch(/^_c_[0-9a-z]{26}-lock-\d{10}$/i);
  const owners = await Promise.all(
    line.map(async (name) => (await fixture.observer.exists(`${KEY}/${name}`))?.ephemeralOwner),
  );
  expect(new Set(owners).size, "a session each").toBe(10);
  // "wchp" lists, below each path, the sessions that watch it
  const watchers = async (): Promise<number[]> => {
    const [, ...blocks] = `\n${await fixture.server.runCommand("wchp")}`.split(/\n(?=\/)/);
    const counts = new Map(
      blocks.map((block) => block.trim().split("\n")).map(([path, ...rest]) => [path, rest.length]),
    );
    return line.map((name) => counts.get(`${KEY}/${name}`) ?? 0);
  };
  // the first is watched by its holder, too; the last has no watcher
  await until(async () => `${await watchers()}` === "2,1,1,1,1,1,1,1,1,0", {
    within: TIMEOUT_MS,
    what: "one watch each",
  });
  await held.release();
  for (const wait of waits) await (await wait).release();
});

test("a connection that is lost puts a lock in jeopardy; only the end of the session loses it", async () => {
  await using proxy = await tcpProxy(fixture.server.address);
  const delays: number[] = [];
  const backoff = exponential(50, 200);
  const locks = openLocks({
    servers: [proxy.address as { host: string; port: number }],
    retry(rounds) {
      delays.push(rounds);
      return backoff(rounds);
    },
  });
  const events: string[] = [];
  const lock = await locks.acquire(KEY);
  let removedAt = 0;
  await fixture.observer.exists(`${KEY}/${(await queueNodes())[0]}`, () => {
    removedAt = performance.now();
  });
  for (const event of ["jeopardy", "restored", "lost"] as const) locks.on(event, () => events.push(event));
  proxy.refuseConnections(true);
  proxy.reset();
  await until(() => delays.length >= 3, { within: TIMEOUT_MS, what: "three tries" });
  expect(events).toEqual(["jeopardy"]);
  proxy.refuseConnections(false);
  await until(() => events.includes("restored"), { within: TIMEOUT_MS, what: "the connection to be back" });
  expect(events).toEqual(["jeopardy", "restored"]);
  lock.throwIfLost();
  proxy.refuseConnections(true);
  proxy.reset();
  const endsAt = performance.now() + lock.remainingMs;
  await until(() => lock.signal.aborted, { within: TIMEOUT_MS, what: "the session to end by our clock" });
  expect(events).toEqual(["jeopardy", "restored", "jeopardy", "lost"]);
  await until(() => removedAt > 0, { within: TIMEOUT_MS, what: "its end at the servers" });
  expect(removedAt, "the servers had it for longer").toBeGreaterThan(endsAt);
  proxy.refuseConnections(false);
  await locks.close();
}, 60_000);

test("without fair order a later claim may be first, and two never hold together", async () => {
  const [holder, earlyClient, lateClient] = [
    openLocks({ fair: false }),
    openLocks({ fair: false }),
    openLocks({ fair: false }),
  ];
  let inversions = 0;
  let insideCount = 0;
  for (let round = 0; round < 30 && inversions === 0; round++) {
    const lock = await holder.acquire(KEY);
    const order: string[] = [];
    const enter = async (locks: Locks, name: string): Promise<void> => {
      await locks.using(KEY, async () => {
        expect(++insideCount).toBe(1);
        order.push(name);
        await fixture.observer.sync("/");
        insideCount--;
      });
    };
    const before = (await fixture.observer.children(KEY)).stat.cversion;
    const first = enter(earlyClient, "early");
    // it entered and left the queue again
    await until(async () => (await fixture.observer.children(KEY)).stat.cversion >= before + 2, {
      within: TIMEOUT_MS,
      what: "its try",
    });
    await lock.release();
    await Promise.all([first, enter(lateClient, "late")]);
    if (order[0] === "late") inversions++;
  }
  expect(inversions).toBe(1);
}, 60_000);
