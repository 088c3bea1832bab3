// Features of ZooKeeper alone: Curator's names, paths as keys, foreign nodes, replies lost at every byte, expired sessions.

import { expect, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import type { ZooKeeperDriverOptions } from "../../../src/drivers/zookeeper/driver.ts";
import type { Claim, ClaimId } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import { makeSessionClaim, readSpecs, zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";
import { setData } from "../../support/stores/zookeeper-requests.ts";
import { createFrameProxy } from "./frame-proxy.ts";

const TIMEOUT_MS = 20_000;
const SESSION_MS = 20_000;
/** For sessions and leases that a test lets expire. */
const SHORT_MS = 4_000;
const IS_LONG_RUN = process.env.HOLDFAST_LONG === "1";
const fixture = zookeeperFixture({}, { root: "/driver", sessionMs: SESSION_MS });
const { openDriver, createDriver } = fixture;
let count = 0;

function openLocks(options: Partial<ZooKeeperDriverOptions> = {}): Locks {
  const locks = createLocks(createDriver(options), { ttl: "session" });
  fixture.clients.push(locks);
  return locks;
}

/** A key for this test alone, and the path of its queue. */
function nextKey(): [string, string] {
  const name = `key-${++count}`;
  return [name, `/driver/${name}`];
}

/** A node as Curator's InterProcessMutex creates it. */
async function createCuratorNode(folder: string, kind = "lock-"): Promise<string> {
  const { path } = await fixture.observer.create(`${folder}/_c_9f0c2a55-8f86-4a0c-9d8d-5f1f3c1c0a11-${kind}`, {
    mode: "ephemeralSequential",
    data: Buffer.from("127.0.0.1"),
  });
  return path;
}

test("nodes are named as Curator names its mutex; other permits precede the number", async () => {
  const driver = await openDriver();
  const [name, folder] = nextKey();
  const [mutex, reader] = [makeSessionClaim(name), makeSessionClaim(name, readSpecs(name))];
  await driver.claim(mutex);
  await driver.claim(reader);
  expect([...(await fixture.observer.children(folder)).names].sort()).toEqual(
    [`_c_${mutex.id}-lock-0000000001`, `_c_${reader.id}-p1.1073741824-lock-0000000002`].sort(),
  );
  await driver.release(toReleases(mutex, reader));
});

test("a client has one session for all its locks, held and waited for", async () => {
  const [locks, other] = [openLocks(), openLocks()];
  const names = [nextKey(), nextKey(), nextKey()].map(([name]) => name) as [string, string, string];
  const held = await Promise.all([locks.acquire(names[0]), locks.rw(names[1]).read.acquire(), other.acquire(names[2])]);
  const waits = locks.acquire(names[2]);
  await until(async () => (await other.list(names[2])).length === 2, { within: TIMEOUT_MS, what: "the place" });
  const owners = await Promise.all(
    names.map(async (name) => {
      const nodes = (await fixture.observer.children(`/driver/${name}`)).names;
      return Promise.all(
        nodes.map(async (node) => (await fixture.observer.exists(`/driver/${name}/${node}`))?.ephemeralOwner),
      );
    }),
  );
  expect(owners.map((owner) => owner.length)).toEqual([1, 1, 2]);
  expect(new Set(owners.flat()).size, "theirs and the other's").toBe(2);
  await Promise.all(held.map((lock) => lock.release()));
  await (await waits).release();
});

test("a Curator mutex and a Holdfast one exclude each other, each in its turn", async () => {
  const driver = await openDriver();
  const [name, folder] = nextKey();
  const [first, second] = [makeSessionClaim(name), makeSessionClaim(name)];
  expect((await driver.claim(first)).state).toBe("held");
  const foreignNode = await createCuratorNode(folder);
  expect((await driver.claim(second)).state).toBe("waiting");
  await driver.release(toReleases(first));
  expect((await driver.renew([second]))[0]?.state, "theirs came before").toBe("waiting");
  await fixture.observer.delete(foreignNode);
  await until(async () => (await driver.renew([second]))[0]?.state === "held", {
    within: TIMEOUT_MS,
    what: "our turn",
  });
  await driver.release(toReleases(second));
});

test("a key that begins with a slash is the node's path itself", async () => {
  const driver = await openDriver();
  const claim = makeSessionClaim("/mylock");
  await driver.claim(claim);
  expect((await fixture.observer.children("/mylock")).names).toEqual([`_c_${claim.id}-lock-0000000001`]);
  expect((await driver.list({ prefix: "/myl" }, { max: 10 })).items.map(({ locks }) => locks[0].key)).toEqual([
    "/mylock",
  ]);
  await driver.release(toReleases(claim));
  await expect(driver.claim(makeSessionClaim("/a//b"))).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED" });
  await expect(driver.claim(makeSessionClaim("/"))).rejects.toMatchObject({
    code: "LOCK_STORE_REFUSED",
    message: expect.stringContaining("key must name a node below the root"),
  });
});

test.each(["__WRIT__", "__READ__", "lease-", "something"])(
  "a path with a child named %s is refused, and no entry is left",
  async (kind) => {
    const driver = await openDriver();
    const [name, folder] = nextKey();
    const before = makeSessionClaim(name);
    await driver.claim(before);
    await driver.release(toReleases(before));
    const foreignNode = await createCuratorNode(folder, kind);
    const claim = makeSessionClaim(name);
    await expect(driver.claim(claim)).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
      message: expect.stringContaining(kind),
    });
    expect((await fixture.observer.children(folder)).names).toEqual([foreignNode.slice(folder.length + 1)]);
  },
);

test("foreign entries are listed, marked so, and never their secrets", async () => {
  const driver = await openDriver();
  const [name, folder] = nextKey();
  const claim = makeSessionClaim(name);
  await driver.claim(claim);
  await createCuratorNode(folder);
  const views = (await driver.list({ prefix: name }, { max: 10 })).items;
  expect(views.map(({ label, answer }) => [label, answer.state])).toEqual([
    ["test", "held"],
    ["(not Holdfast) 127.0.0.1", "waiting"],
  ]);
  const text = JSON.stringify(views, (_, value: unknown) => String(value));
  expect(text).not.toContain("9f0c2a55");
  await driver.release(toReleases(claim));
});

test("a Holdfast entry with overwritten data is not taken for another program's", async () => {
  const driver = await openDriver();
  const [name, folder] = nextKey();
  const claim = makeSessionClaim(name);
  await driver.claim(claim);
  const [node] = (await fixture.observer.children(folder)).names;
  await setData(fixture.observer, `${folder}/${node}`, Buffer.from("scribble"));
  expect((await driver.list({ key: name }, { max: 10 })).items.map(({ label }) => label)).toEqual([
    "(data overwritten) scribble",
  ]);
  await driver.release(toReleases(claim));
});

test("the queue of one key costs two requests, however many claims are in it", async () => {
  await using proxy = await createFrameProxy(fixture.server.address, { dropsEvents: true });
  const [driver, looker] = [await openDriver(), await openDriver({ servers: [proxy.address] })];
  const [name] = nextKey();
  const claims = Array.from({ length: 200 }, () => makeSessionClaim(name));
  await Promise.all(claims.map((claim) => driver.claim(claim)));
  const before = proxy.requests();
  expect((await looker.list({ key: name }, { max: 1_000 })).items).toHaveLength(200);
  expect(proxy.requests() - before).toBe(2);
  await driver.release(toReleases(...claims));
});

test("entries of the other family, for which a path is refused, are listed as well and explain the refusal", async () => {
  const driver = await openDriver();
  const [name, folder] = nextKey();
  const readWriteDriver = await openDriver({ family: "readWrite" });
  const claim = makeSessionClaim(name);
  await readWriteDriver.claim(claim);
  await createCuratorNode(folder, "__READ__");
  await fixture.observer.create(`${folder}/latch-`, { mode: "ephemeralSequential" });
  await expect(driver.claim(makeSessionClaim(name))).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED" });
  const views = (await driver.list({ prefix: name }, { max: 10 })).items;
  expect(views.map(({ label, answer, locks }) => [label, answer.state, locks[0].permits])).toEqual([
    ["(family readWrite) test", "held", ALL_PERMITS],
    ["(not Holdfast, family readWrite) 127.0.0.1", "waiting", 1],
  ]);
  await readWriteDriver.release(toReleases(claim));
});

test.each(["a b", "a/b", "ä", "%41", ".", "..", "*", "{x}", "zookeeper", "-", "a.b", "__proto__", "\u{1f512}"])(
  "the key %j has its own queue, and is listed by its name",
  async (name) => {
    const driver = await openDriver({ root: "/escaped" });
    const claim = makeSessionClaim(name);
    expect((await driver.claim(claim)).state).toBe("held");
    expect((await driver.list({ prefix: "" }, { max: 10 })).items.map(({ locks }) => locks[0].key)).toEqual([name]);
    await driver.release(toReleases(claim));
  },
);

test("a create whose reply is lost at any byte makes one node, which is found", async () => {
  await using proxy = await tcpProxy(fixture.server.address);
  const { port } = proxy.address as { port: number };
  const driver = await openDriver({ servers: [{ host: "127.0.0.1", port }] });
  const [name, folder] = nextKey();
  const warm = makeSessionClaim(name);
  await driver.claim(warm);
  await driver.release(toReleases(warm));
  for (let bytes = 1; bytes < 180; bytes += IS_LONG_RUN ? 1 : 3) {
    const claim = makeSessionClaim(name);
    proxy.toClient.cutAfter(bytes);
    const answer = await until(() => driver.claim(claim).catch(() => null), { within: TIMEOUT_MS, what: "an answer" });
    expect(answer.state, `after ${bytes} bytes`).toBe("held");
    expect((await fixture.observer.children(folder)).names).toHaveLength(1);
    await until(() => driver.release(toReleases(claim)).catch(() => null), { within: TIMEOUT_MS, what: "the release" });
    expect((await fixture.observer.children(folder)).names).toEqual([]);
  }
}, 60_000);

test("a claim released while its create has no answer leaves no node", async () => {
  await using proxy = await tcpProxy(fixture.server.address);
  const { port } = proxy.address as { port: number };
  const driver = await openDriver({ servers: [{ host: "127.0.0.1", port }] });
  const [name, folder] = nextKey();
  for (let bytes = 1; bytes < 180; bytes += IS_LONG_RUN ? 1 : 7) {
    const claim = makeSessionClaim(name);
    proxy.toClient.cutAfter(bytes);
    const pendingClaim = driver.claim(claim).catch(() => null);
    await until(() => driver.release(toReleases(claim)).catch(() => null), { within: TIMEOUT_MS, what: "the release" });
    await pendingClaim;
    expect((await driver.claim(claim)).state).toBe("none");
    expect((await fixture.observer.children(folder).catch(() => ({ names: [] }))).names).toEqual([]);
  }
}, 60_000);

test("the end of a session ends its held claims, and waiting claims wait on in the next one", async () => {
  await using proxy = await tcpProxy(fixture.server.address);
  const { port } = proxy.address as { port: number };
  const [name] = nextKey();
  const [cutClient, other] = [openLocks({ servers: [{ host: "127.0.0.1", port }], sessionMs: SHORT_MS }), openLocks()];
  const lock = await cutClient.acquire(name);
  const [blocking] = nextKey();
  const blocker = await other.acquire(blocking);
  const waits = cutClient.acquire(blocking);
  await until(async () => (await other.list(blocking)).length === 2, { within: TIMEOUT_MS, what: "the place" });
  proxy.toTarget.pause();
  proxy.toClient.pause();
  await until(() => lock.signal.aborted, { within: TIMEOUT_MS, what: "the loss at the holder" });
  const next = other.acquire(name);
  proxy.refuseConnections(true);
  proxy.reset();
  await (await next).release();
  proxy.toTarget.resume();
  proxy.toClient.resume();
  proxy.refuseConnections(false);
  expect(await blocker.release()).toBe(true);
  expect(await (await waits).release()).toBe(true);
}, 60_000);

test("a deleted node is a lost lock, at once", async () => {
  const locks = openLocks();
  const [name, folder] = nextKey();
  const lock = await locks.acquire(name);
  const [node] = (await fixture.observer.children(folder)).names;
  await fixture.observer.delete(`${folder}/${node}`);
  // sooner than the holder's own next renewal would notice it
  await expect.poll(() => lock.signal.aborted, { timeout: SESSION_MS / 4 }).toBe(true);
});

test("a Curator request to release is obeyed", async () => {
  const locks = openLocks();
  const [name, folder] = nextKey();
  const lock = await locks.acquire(name);
  const [node] = (await fixture.observer.children(folder)).names;
  await setData(fixture.observer, `${folder}/${node}`, Buffer.from("__REVOKE__"));
  await until(() => lock.signal.aborted, { within: TIMEOUT_MS, what: "the holder to be told" });
  expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", reason: "revoked" });
  expect(await lock.release()).toBe(false);
  const isEmpty = async (): Promise<boolean> => (await fixture.observer.children(folder)).names.length === 0;
  await until(isEmpty, { within: TIMEOUT_MS, what: "its place to be given up" });
});

test("a floor that the store's tokens cannot reach is refused, unless tokenBase raises them", async () => {
  const [name, folder] = nextKey();
  const floor = 1_795_247_483_680_000n;
  const plainDriver = await openDriver();
  const refusedClaim = makeSessionClaim(name, { floor });
  await expect(plainDriver.claim(refusedClaim)).rejects.toMatchObject({
    code: "LOCK_STORE_REFUSED",
    message: expect.stringContaining("tokenBase"),
  });
  expect((await fixture.observer.children(folder)).names).toEqual([]);
  const raisedDriver = await openDriver({ tokenBase: floor });
  const claim = makeSessionClaim(name, { floor });
  expect(await raisedDriver.claim(claim)).toMatchObject({ state: "held" });
  await raisedDriver.release(toReleases(claim));
});

test.each<readonly [string, Partial<ZooKeeperDriverOptions>, string]>([
  ["SASL where the servers have no users", { sasl: { user: "bob", password: "canary" } }, "does not request SASL"],
  ["an ACL for whom we are, where we are nobody", { acl: [{ perms: 31, scheme: "auth", id: "" }] }, "INVALID_ACL"],
  ["an ACL of a scheme that the servers do not have", { acl: [{ perms: 31, scheme: "x", id: "y" }] }, "INVALID_ACL"],
])("%s is refused permanently, at once", async (_, options, reason) => {
  const error = await createDriver(options)
    .open(NO_EVENTS)
    .catch((thrown: unknown) => thrown as Error);
  expect(error).toMatchObject({ code: "LOCK_STORE_REFUSED", message: expect.stringContaining(reason) });
  expect((error as Error).message).not.toContain("canary");
});

test("a waiter watches one node: no other waiter wakes when the holder is released", async () => {
  const pushedIds: (ClaimId | null)[] = [];
  const driver = await openDriver({}, (id) => pushedIds.push(id));
  const [name] = nextKey();
  const claims = Array.from({ length: 20 }, () => makeSessionClaim(name));
  for (const claim of claims) await driver.claim(claim);
  pushedIds.length = 0;
  await driver.release(toReleases(claims[0] as Claim));
  await until(() => pushedIds.length > 0, { within: TIMEOUT_MS, what: "the next one" });
  await fixture.observer.sync("/driver");
  expect(pushedIds).toEqual([claims[1]?.id]);
  await driver.release(toReleases(...claims));
});
