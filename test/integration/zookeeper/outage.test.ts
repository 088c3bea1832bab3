// Errors and events while no server is reachable, and the cost of a lock on the wire while one is.

import { expect, test } from "vitest";
import type { ZooKeeperDriverOptions } from "../../../src/drivers/zookeeper/driver.ts";
import { zookeeper } from "../../../src/drivers/zookeeper/driver.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import type { Clock } from "../../../src/util/clock.ts";
import { systemClock } from "../../../src/util/clock.ts";
import { zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";

/** Long, so that an earlier notification cannot come from its end. */
const SESSION_MS = 40_000;
const PROMPT_MS = 8_000;
const fixture = zookeeperFixture();

function openLocks(
  { host, port }: { host: string; port: number },
  options: Partial<ZooKeeperDriverOptions> = {},
): Locks {
  const driver = zookeeper({ servers: [{ host, port }], root: "/outage", sessionMs: SESSION_MS, ...options });
  const locks = createLocks(driver, { ttl: "session" });
  fixture.clients.push(locks);
  return locks;
}

function recordEvents(locks: Locks): string[] {
  const events: string[] = [];
  for (const event of ["storeDown", "storeUp", "jeopardy", "restored", "lost"] as const) {
    locks.on(event, () => events.push(event));
  }
  return events;
}

test("an idle client learns soon that no server is reachable, and waits on; a try fails with that reason", async () => {
  await using proxy = await tcpProxy(fixture.server.address);
  const locks = openLocks(proxy.address as { host: string; port: number });
  const events = recordEvents(locks);
  await (await locks.acquire("warm")).release();
  proxy.refuseConnections(true);
  proxy.reset();
  const waits = locks.acquire("key");
  await until(() => events.length > 0, { within: PROMPT_MS, what: "storeDown" });
  await expect(locks.tryAcquire("other")).rejects.toMatchObject({
    code: "LOCK_STORE_FAILED",
    message: expect.stringContaining("no server is connected"),
  });
  await expect(locks.list()).rejects.toThrow("no server is connected");
  expect(events).toEqual(["storeDown"]);
  proxy.refuseConnections(false);
  const lock = await waits;
  expect(events).toEqual(["storeDown", "storeUp"]);
  await lock.release();
  await locks.close();
});

test("a waiter is notified of an outage at once, and keeps its entry", async () => {
  await using proxy = await tcpProxy(fixture.server.address);
  const [holder, locks] = [
    openLocks(fixture.server.address),
    openLocks(proxy.address as { host: string; port: number }),
  ];
  const events = recordEvents(locks);
  const lock = await holder.acquire("line");
  const waits = locks.acquire("line");
  await until(async () => (await holder.list("line")).length === 2, { within: PROMPT_MS, what: "its place" });
  const last = holder.acquire("line");
  proxy.refuseConnections(true);
  proxy.reset();
  await until(() => events.length > 0, { within: PROMPT_MS, what: "storeDown" });
  expect(events).toEqual(["storeDown"]);
  proxy.refuseConnections(false);
  await lock.release();
  await (await waits).release();
  await (await last).release();
  await locks.close();
});

test("a holder is notified of an outage at once, long before a renewal is due, and of its end", async () => {
  await using proxy = await tcpProxy(fixture.server.address);
  const locks = openLocks(proxy.address as { host: string; port: number });
  const events = recordEvents(locks);
  const lock = await locks.acquire("mine");
  proxy.refuseConnections(true);
  proxy.reset();
  await until(() => events.length === 2, { within: PROMPT_MS, what: "storeDown and jeopardy" });
  expect(events.sort()).toEqual(["jeopardy", "storeDown"]);
  expect(lock.remainingMs).toBeGreaterThan(SESSION_MS / 2);
  proxy.refuseConnections(false);
  await until(() => events.length === 4, { within: PROMPT_MS, what: "storeUp and restored" });
  expect(events.sort()).toEqual(["jeopardy", "restored", "storeDown", "storeUp"]);
  expect(await lock.release()).toBe(true);
  await locks.close();
});

/** A second of whoever has it takes ten, so that a busy machine has done by then what a quiet one does in one. */
const slowClock: Clock = {
  ...systemClock,
  now: () => systemClock.now() / 10,
  timer(run) {
    const timer = systemClock.timer(run);
    return { ...timer, set: (due) => timer.set(due === null ? null : due * 10) };
  },
};

test("a moment without a connection is no outage: a try at that moment is answered", async () => {
  await using proxy = await tcpProxy(fixture.server.address);
  let isDown = (): void => undefined;
  const storeDown = new Promise<void>((resolve) => {
    isDown = resolve;
  });
  const locks = openLocks(proxy.address as { host: string; port: number }, {
    clock: slowClock,
    retry() {
      isDown();
      return 20;
    },
  });
  const events = recordEvents(locks);
  await (await locks.acquire("moment")).release();
  proxy.reset();
  await storeDown;
  const lock = await locks.tryAcquire("moment");
  expect(await lock?.release()).toBe(true);
  expect(events).toEqual([]);
  await locks.close();
});

test("a lock acquired and released at once costs three requests: create, list and delete", async () => {
  const locks = openLocks(fixture.server.address);
  const received = async (): Promise<number> =>
    Number(/Received: (\d+)/.exec(await fixture.server.runCommand("srvr"))?.[1]);
  await (await locks.acquire("cost")).release();
  const [before, pairs] = [await received(), 50];
  for (let pair = 0; pair < pairs; pair++) await (await locks.acquire("cost")).release();
  const perPair = ((await received()) - before) / pairs;
  // an occasional ping, and the test's own requests
  expect(perPair).toBeGreaterThanOrEqual(3);
  expect(perPair).toBeLessThan(3.3);
});

test("a client that found no server at first finds it later, each time again", async () => {
  await using proxy = await tcpProxy(fixture.server.address);
  const locks = openLocks(proxy.address as { host: string; port: number }, { connectTimeout: 300 });
  proxy.refuseConnections(true);
  for (const key of ["early", "early again"]) {
    await expect(locks.acquire(key)).rejects.toMatchObject({ code: "LOCK_STORE_FAILED" });
  }
  proxy.refuseConnections(false);
  // on a busy machine the first attempt may still be too short
  const lock = await until(() => locks.acquire("late").catch(() => null), { within: PROMPT_MS, what: "the server" });
  expect(await lock.release()).toBe(true);
  await locks.close();
});
