// Unfair claims (fair: false): the complete contract except order, without entries in a queue.

import { describe, expect, test } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { ZooKeeper } from "../../../src/drivers/zookeeper/client/zookeeper.ts";
import type { ZooKeeperDriverOptions } from "../../../src/drivers/zookeeper/driver.ts";
import { zookeeper } from "../../../src/drivers/zookeeper/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { testDriver } from "../../client/suite.ts";
import type { RecordedTest } from "../../conformance/suite-recorder.ts";
import { recordSuite, runExpectingFailure } from "../../conformance/suite-recorder.ts";
import { zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";
import { randomSuffixLock } from "./random-suffix.ts";

const TIMEOUT_MS = 20_000;
const SESSION_MS = 4_000;
const isLongRun = process.env.HOLDFAST_LONG === "1";
const fixture = zookeeperFixture();
let stores = 0;

function openLocks(options: Partial<ZooKeeperDriverOptions>): Locks {
  const driver = zookeeper({ servers: [fixture.server.address], root: "/unfair", sessionMs: 20_000, ...options });
  const locks = createLocks(driver, { ttl: "session", order: "strict" });
  fixture.clients.push(locks);
  return locks;
}

async function queueNodes(key: string): Promise<number> {
  return (await fixture.observer.children(`/unfair/${key}`)).names.length;
}

test.each([
  ["", true],
  ["?fair=true", true],
  ["?fair=false", false],
])("the order in a url (%j) is the order of the driver", async (query, isFair) => {
  const { host, port } = fixture.server.address;
  await using locks = await connect(`zookeeper://${host}:${port}${query}`, { ttl: "session" });
  expect(locks.traits?.fifo).toBe(isFair);
});

test("a waiter has no node, and is granted after the holder's release", async () => {
  const [holder, waiter] = [openLocks({ fair: false }), openLocks({ fair: false })];
  const lock = await holder.acquire("k");
  const waits = waiter.acquire("k");
  // a claim that came and left: two changes beside the holder's
  await until(async () => (await fixture.observer.children("/unfair/k")).stat.cversion >= 3, {
    within: TIMEOUT_MS,
    what: "the try",
  });
  expect(await queueNodes("k")).toBe(1);
  await lock.release();
  await (await waits).release();
});

test("a cancelled wait or a single try leaves nothing", async () => {
  const [holder, other] = [openLocks({}), openLocks({ fair: false })];
  const lock = await holder.acquire("given-up");
  await expect(other.acquire("given-up", { wait: 300 })).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
  expect(await other.tryAcquire("given-up")).toBeNull();
  await until(async () => (await queueNodes("given-up")) === 1, {
    within: TIMEOUT_MS,
    what: "no node but the holder's",
  });
  await lock.release();
  expect(await queueNodes("given-up")).toBe(0);
});

test("a woken waiter that finds another holder watches that one", async () => {
  // long sessions: no periodic recheck happens in time
  const [holder, waiter, lateClient] = [{}, { fair: false }, {}].map((options) =>
    openLocks({ ...options, sessionMs: 30_000 }),
  ) as [Locks, Locks, Locks];
  const lock = await holder.acquire("overtaken");
  const waits = waiter.acquire("overtaken");
  await until(async () => (await fixture.observer.children("/unfair/overtaken")).stat.cversion >= 3, {
    within: TIMEOUT_MS,
    what: "its try",
  });
  const lateAcquire = lateClient.acquire("overtaken");
  await until(async () => (await queueNodes("overtaken")) === 2, { within: TIMEOUT_MS, what: "the late one's place" });
  await lock.release();
  const next = await lateAcquire;
  // by its holder and by the waiter
  const watchers = async (): Promise<number> =>
    (/^\/unfair\/overtaken\/\S+((?:\n\t\S+)*)/m.exec(await fixture.server.runCommand("wchp"))?.[1] ?? "").split("\n")
      .length - 1;
  await expect.poll(watchers, { timeout: TIMEOUT_MS }).toBe(2);
  await next.release();
  await (await waits).release();
});

test("fair and unfair clients on one key: never two holders, and none is starved", async () => {
  let [insideCount, maxInside, grants] = [0, 0, 0];
  const runCaller = async (locks: Locks): Promise<void> => {
    for (let turn = 0; turn < 10; turn++) {
      await locks.using("mixed", async () => {
        maxInside = Math.max(maxInside, ++insideCount);
        await fixture.observer.sync("/unfair");
        insideCount--;
        grants++;
      });
    }
  };
  await Promise.all(Array.from({ length: 10 }, (_, n) => runCaller(openLocks({ fair: n % 2 === 0 }))));
  expect([maxInside, grants]).toEqual([1, 100]);
  expect(await queueNodes("mixed")).toBe(0);
}, 60_000);

test("unfair readers share, and a writer waits for the last of them", async () => {
  const [client, other, third] = [openLocks({ fair: false }), openLocks({ fair: false }), openLocks({ fair: false })];
  const readers = [await client.rw("rw").read.acquire(), await other.rw("rw").read.acquire()];
  let written = false;
  const writes = third
    .rw("rw")
    .write.acquire()
    .then((lock) => {
      written = true;
      return lock;
    });
  await readers[0]?.release();
  expect(await other.rw("rw").write.tryAcquire()).toBeNull();
  expect(written).toBe(false);
  await readers[1]?.release();
  await (await writes).release();
});

test("the articles' random suffix gives no order: the suite finds two holders", async () => {
  const suite = recordSuite({
    async open() {
      const root = `/random-${++stores}`;
      const createZooKeeper = (): ZooKeeper =>
        new ZooKeeper({ servers: [fixture.server.address], sessionMs: SESSION_MS });
      return { driver: () => randomSuffixLock(createZooKeeper(), root, SESSION_MS) };
    },
    traits: { lease: { claim: false, sessionMs: SESSION_MS }, manyKeys: false, permits: "one", fifo: false },
    random: { seeds: 0 },
  });
  const [busy] = suite.filter(({ name }) => name.startsWith("a claim of a busy key waits"));
  // every second claim of a held key draws the lower number, and holds it too
  const failures = new Set<string | null>();
  for (let turn = 0; turn < 20 && failures.size < 2; turn++)
    failures.add(await runExpectingFailure(busy as RecordedTest));
  expect([...failures].find((failure) => failure !== null)).toMatch(/waiting|held/);
}, 60_000);

/** These tests list the waiters, and unfair waiters are not in the list. */
const UNLISTED_TOPICS = [
  "a claim that is sent twice at once has one entry",
  "a listed claim shows its lock specs, its state and its tag, but never its id",
  "a list comes in pages: none left out, none twice",
  "claims of a session queue like all others, and show the session's length",
  "mutex: a wait ends with the release",
  "write: a wait ends with the release",
  "all of one key: a wait ends with the release",
  "semaphore of one: a wait ends with the release",
  "an aborted waiter rejects with its signal's reason and leaves no entry",
  "rw: readers share, across clients and within one; a writer has it alone",
  "a revoked holder's signal aborts with reason revoked, and the next waiter is granted after its release",
  "close() releases held locks, ends waits with ClosedError, and leaves nothing",
  "a list shows holders and waiters, with labels, within the client's prefix",
  "a wait that times out says how many were ahead: at the store and in its own client",
];

if (isLongRun) {
  testDriver({ describe, test }, "ZooKeeper without places", {
    traits: { lease: { claim: false, sessionMs: SESSION_MS }, manyKeys: false, fifo: false },
    verbs: ["revoke"],
    keys: 500,
    random: { seeds: 5 },
    timeScale: 2,
    skip: [
      ...UNLISTED_TOPICS.map((test) => ({ test, reason: "no place, so it is not listed" })),
      { test: "a batch is answered in the order of its claims", reason: "tried again a moment after the release" },
      {
        test: "a client that hands off lets others in between its runs",
        reason: "its next claim is there before theirs: who keeps no place has no turn",
      },
    ],
    async open() {
      const root = `/store-${++stores}`;
      return {
        driver: () => zookeeper({ servers: [fixture.server.address], root, sessionMs: SESSION_MS, fair: false }),
      };
    },
  });
}
