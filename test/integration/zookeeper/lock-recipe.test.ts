// Guarantees of the recipe where others failed: abandoned nodes, unseen grants, reconnect storms, removed parents.

import { expect, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { listChildren } from "../../../src/drivers/zookeeper/client/helpers.ts";
import type { ZooKeeperDriverOptions } from "../../../src/drivers/zookeeper/driver.ts";
import { zookeeper } from "../../../src/drivers/zookeeper/driver.ts";
import type { Claim, ClaimId } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { toReleases } from "../../support/releases.ts";
import { makeSessionClaim, readSpecs, zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";
import { createSessionTerminator } from "./session-terminator.ts";

const TIMEOUT_MS = 20_000;
const SESSION_MS = 10_000;
const CURATOR = "_c_9f0c2a55-8f86-4a0c-9d8d-5f1f3c1c0a11-";
// empty parents are removed as early as possible, so that every test here meets a removal
const fixture = zookeeperFixture({ reapMs: 50 }, { root: "/recipe", sessionMs: SESSION_MS });
const { openDriver, createDriver } = fixture;
let count = 0;

function openLocks(options: Partial<ZooKeeperDriverOptions> = {}): Locks {
  const locks = createLocks(createDriver(options), { ttl: "session", order: "strict" });
  fixture.clients.push(locks);
  return locks;
}

function nextKey(): [string, string] {
  const name = `key-${++count}`;
  return [name, `/recipe/${name}`];
}

/** None if their parent is gone, too. */
function queueNodes(folder: string): Promise<readonly string[]> {
  return listChildren(fixture.observer, folder);
}

test("in the family of Curator's read-write lock nodes have its names, and its nodes are obeyed", async () => {
  const driver = await openDriver({ family: "readWrite" });
  const [name, folder] = nextKey();
  const [reader, writer, last] = [
    makeSessionClaim(name, readSpecs(name)),
    makeSessionClaim(name),
    makeSessionClaim(name, readSpecs(name)),
  ];
  expect((await driver.claim(reader)).state).toBe("held");
  const foreignNode = (await fixture.observer.create(`${folder}/${CURATOR}__READ__`, { mode: "ephemeralSequential" }))
    .path;
  expect((await driver.claim(writer)).state).toBe("waiting");
  expect((await driver.claim(last)).state).toBe("waiting");
  expect([...(await queueNodes(folder))].sort()).toEqual(
    [
      `_c_${reader.id}-__READ__0000000001`,
      foreignNode.slice(folder.length + 1),
      `_c_${writer.id}-__WRIT__0000000003`,
      `_c_${last.id}-__READ__0000000004`,
    ].sort(),
  );
  await driver.release(toReleases(reader));
  expect((await driver.renew([writer]))[0]?.state, "their reader is in").toBe("waiting");
  await fixture.observer.delete(foreignNode);
  expect((await driver.renew([writer, last])).map((answer) => answer?.state)).toEqual(["held", "waiting"]);
  await driver.release(toReleases(writer, last));
});

test("the second of two families on one path is refused, without an id in the message", async () => {
  const [mutex, rw] = [await openDriver(), await openDriver({ family: "readWrite" })];
  for (const [first, second, advice] of [
    [mutex, rw, 'family: "mutex"'],
    [rw, mutex, 'family: "readWrite"'],
  ] as const) {
    const [name, folder] = nextKey();
    const [held, refusedClaim] = [makeSessionClaim(name), makeSessionClaim(name)];
    await first.claim(held);
    const error = await second.claim(refusedClaim).catch((thrown: unknown) => thrown as Error);
    expect(error).toMatchObject({ code: "LOCK_STORE_REFUSED", message: expect.stringContaining(advice) });
    expect((error as Error).message).not.toContain(held.id);
    expect(await queueNodes(folder)).toHaveLength(1);
    await first.release(toReleases(held));
  }
});

test("a foreign node on one path affects that path alone", async () => {
  const driver = await openDriver();
  const [[bad, folder], [good]] = [nextKey(), nextKey()];
  const [holder, waiter, other, next] = [
    makeSessionClaim(bad),
    makeSessionClaim(bad),
    makeSessionClaim(good),
    makeSessionClaim(good),
  ];
  for (const claim of [holder, waiter, other, next]) await driver.claim(claim);
  const foreignNode = (await fixture.observer.create(`${folder}/${CURATOR}__WRIT__`, { mode: "ephemeralSequential" }))
    .path;
  const states = (await driver.renew([holder, waiter, other, next])).map((answer) => answer?.state);
  expect(states).toEqual(["held", "none", "held", "waiting"]);
  await expect(driver.claim(makeSessionClaim(bad))).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED" });
  await driver.release(toReleases(holder, other, next));
  expect(await queueNodes(folder)).toEqual([foreignNode.slice(folder.length + 1)]);
  await fixture.observer.delete(foreignNode);
});

test("a wait that times out leaves no node, and the next claim does not wait for it", async () => {
  const [client, other] = [openLocks(), openLocks()];
  const [name, folder] = nextKey();
  const lock = await client.acquire(name);
  await expect(other.acquire(name, { wait: 200 })).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
  await until(async () => (await queueNodes(folder)).length === 1, { within: TIMEOUT_MS, what: "its place to go" });
  await lock.release();
  await (await other.acquire(name)).release();
  expect(await queueNodes(folder)).toEqual([]);
});

test("a node of an earlier request of the same session is not taken for a later one's", async () => {
  await using proxy = await tcpProxy(fixture.server.address);
  const driver = await openDriver({ servers: [proxy.address as { host: string; port: number }] });
  const [name, folder] = nextKey();
  const earlier = makeSessionClaim(name);
  expect((await driver.claim(earlier)).state).toBe("held");
  // the later request's create is lost on its way, so that the client looks for its node
  const laterClaim = makeSessionClaim(name);
  proxy.toTarget.cutAfter(20);
  await driver.claim(laterClaim).catch(() => undefined);
  const answer = await until(() => driver.claim(laterClaim).catch(() => null), {
    within: TIMEOUT_MS,
    what: "an answer",
  });
  expect(answer.state).toBe("waiting");
  expect(await queueNodes(folder)).toHaveLength(2);
  await driver.release(toReleases(earlier, laterClaim));
});

test("a node of another session is not taken for the client's own, whatever its name", async () => {
  await using proxy = await tcpProxy(fixture.server.address);
  const endingDriver = await openDriver();
  const driver = await openDriver({ servers: [proxy.address as { host: string; port: number }] });
  const [name, folder] = nextKey();
  const claim = makeSessionClaim(name);
  expect((await endingDriver.claim(claim)).state).toBe("held");
  const repeatedClaim = { ...claim };
  proxy.toTarget.cutAfter(20);
  await driver.claim(repeatedClaim).catch(() => undefined);
  const answer = await until(() => driver.claim(repeatedClaim).catch(() => null), {
    within: TIMEOUT_MS,
    what: "an answer",
  });
  expect(answer.state).toBe("waiting");
  expect(await queueNodes(folder)).toHaveLength(2);
  await driver.release(toReleases(repeatedClaim));
  expect(await queueNodes(folder)).toHaveLength(1);
  await endingDriver.release(toReleases(claim));
});

test("a release between the list and the watch is noticed", async () => {
  const pushedIds: (ClaimId | null)[] = [];
  await using proxy = await tcpProxy(fixture.server.address);
  const driver = await openDriver({ servers: [proxy.address as { host: string; port: number }] }, (id) =>
    pushedIds.push(id),
  );
  const [name, folder] = nextKey();
  const blocker = await (async () => {
    const warm = makeSessionClaim(name);
    await driver.claim(warm);
    const { path } = await fixture.observer.create(`${folder}/${CURATOR}lock-`, { mode: "ephemeralSequential" });
    await driver.release(toReleases(warm));
    return path;
  })();
  const claim = makeSessionClaim(name);
  // its list arrives late: when it sets its watch, the predecessor is gone
  proxy.toClient.delay(300);
  const pendingClaim = driver.claim(claim);
  await until(async () => (await queueNodes(folder)).length === 2, { within: TIMEOUT_MS, what: "its place" });
  await fixture.observer.delete(blocker);
  expect((await pendingClaim).state).toBe("waiting");
  await until(() => pushedIds.includes(claim.id), { within: TIMEOUT_MS, what: "to be told" });
  expect((await driver.renew([claim]))[0]?.state).toBe("held");
  await driver.release(toReleases(claim));
});

test("each release among a thousand waiters wakes one, the next", async () => {
  const pushedIds: ClaimId[] = [];
  const driver = await openDriver({}, (id) => void (id !== null && pushedIds.push(id)));
  const [name, folder] = nextKey();
  const claims = Array.from({ length: 1_001 }, () => makeSessionClaim(name));
  // in this order: creates of one connection are executed as they were sent
  await Promise.all(claims.map((claim) => driver.claim(claim)));
  expect(pushedIds).toEqual([]);
  const watchCount = Number(/Total watches:(\d+)/.exec(await fixture.server.runCommand("wchs"))?.[1]);
  expect(watchCount, "one watch a waiter, and the holder's own").toBeLessThanOrEqual(1_001);
  for (let turn = 0; turn < 100; turn++) {
    await driver.release(toReleases(claims[turn] as Claim));
    await until(() => pushedIds.length > turn, { within: TIMEOUT_MS, what: "the next one" });
    expect((await driver.renew([claims[turn + 1] as Claim]))[0]?.state).toBe("held");
  }
  expect(pushedIds).toEqual(claims.slice(1, 101).map(({ id }) => id));
  await driver.release(toReleases(...claims));
  expect(await queueNodes(folder)).toEqual([]);
}, 60_000);

test("a release that cannot be sent is sent when the servers are back, and its node goes although the session lives", async () => {
  await using proxy = await tcpProxy(fixture.server.address);
  const [cutClient, other] = [openLocks({ servers: [proxy.address as { host: string; port: number }] }), openLocks()];
  const [name, folder] = nextKey();
  const lock = await cutClient.acquire(name);
  const keptLock = await cutClient.acquire(`${name}-kept`);
  proxy.refuseConnections(true);
  proxy.reset();
  const pendingRelease = lock.release();
  const next = other.acquire(name);
  expect(await queueNodes(folder)).not.toEqual([]);
  proxy.refuseConnections(false);
  await (await next).release();
  await pendingRelease;
  keptLock.throwIfLost();
  await keptLock.release();
});

test("a session that is ended from outside loses its holds, its waiters wait on, and the next session is used", async () => {
  await using sessionTerminator = await createSessionTerminator(fixture.server.address);
  const [affectedClient, other] = [openLocks({ servers: [sessionTerminator.address] }), openLocks()];
  const [[held], [busyKey]] = [nextKey(), nextKey()];
  const lock = await affectedClient.acquire(held);
  const blocker = await other.acquire(busyKey);
  const waits = affectedClient.acquire(busyKey);
  await until(async () => (await other.list(busyKey)).length === 2, { within: TIMEOUT_MS, what: "the place" });
  await sessionTerminator.terminateSession();
  await until(() => lock.signal.aborted, { within: TIMEOUT_MS, what: "the holder to be told" });
  expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", reason: "expired" });
  await (await other.acquire(held)).release();
  await until(async () => (await other.list(busyKey)).length === 2, { within: TIMEOUT_MS, what: "the next place" });
  await blocker.release();
  await (await waits).release();
  await affectedClient.close();
}, 60_000);

test("repeated reconnects make no more nodes than there are claims", async () => {
  await using proxy = await tcpProxy(fixture.server.address);
  const driver = await openDriver({ servers: [proxy.address as { host: string; port: number }], retry: () => 5 });
  const [name, folder] = nextKey();
  const claims = Array.from({ length: 20 }, () => makeSessionClaim(name));
  let [done, most] = [0, 0];
  const working = Promise.all(
    claims.map(async (claim) => {
      await until(() => driver.claim(claim).catch(() => null), { within: TIMEOUT_MS, what: "a place" });
      done++;
    }),
  );
  for (let reset = 0; reset < 40; reset++) {
    proxy.toClient.cutAfter(30 + 7 * reset);
    most = Math.max(most, (await queueNodes(folder)).length);
    await driver.renew(claims.slice(0, 1)).catch(() => undefined);
  }
  proxy.toClient.cutAfter(Number.POSITIVE_INFINITY);
  await working;
  most = Math.max(most, (await queueNodes(folder)).length);
  expect([done, most]).toEqual([20, 20]);
  const prefixes = new Set((await queueNodes(folder)).map((node) => node.split("-")[0]));
  expect(prefixes.size).toBe(20);
  await until(() => driver.release(toReleases(...claims)).catch(() => null), {
    within: TIMEOUT_MS,
    what: "the release",
  });
  expect(await queueNodes(folder)).toEqual([]);
}, 60_000);

test("empty parents are removed, of keys and of paths, and a claim of the key at that moment succeeds", async () => {
  const locks = openLocks();
  const name = "/deep/path/of/mine";
  for (let turn = 0; turn < 60; turn++) await locks.using(name, () => undefined);
  await until(async () => (await fixture.observer.exists("/deep")) === null, {
    within: TIMEOUT_MS,
    what: "the parents to be removed",
  });
  await locks.using(name, () => undefined);
  const [other, folder] = nextKey();
  await locks.using(other, () => undefined);
  await until(async () => (await fixture.observer.exists(folder)) === null, {
    within: TIMEOUT_MS,
    what: "the key's node to be removed",
  });
  expect(await fixture.observer.exists("/recipe")).not.toBeNull();
});

test("a claim released while the parent of its node is being created leaves no node", async () => {
  const driver = await openDriver();
  for (let turn = 0; turn < 10; turn++) {
    const [name, folder] = nextKey();
    const claim = makeSessionClaim(name);
    const pendingClaim = driver.claim(claim);
    await driver.release(toReleases(claim));
    expect((await pendingClaim).state).toBe("none");
    expect(await queueNodes(folder)).toEqual([]);
  }
});

test("a missing chroot is created, and a prefix separates the locks of two programs", async () => {
  const driver = zookeeper({ servers: [fixture.server.address], chroot: "/name/space", sessionMs: SESSION_MS });
  const [billing, mail] = [
    createLocks(driver, { ttl: "session", prefix: "billing/" }),
    createLocks(zookeeper({ servers: [fixture.server.address], chroot: "/name/space", sessionMs: SESSION_MS }), {
      ttl: "session",
      prefix: "mail/",
    }),
  ];
  fixture.clients.push(billing, mail);
  const locks = [await billing.acquire("nightly"), await mail.acquire("nightly")];
  expect([...(await fixture.observer.children("/name/space/holdfast")).names].sort()).toEqual([
    "billing%2Fnightly",
    "mail%2Fnightly",
  ]);
  await Promise.all(locks.map((lock) => lock.release()));
});
