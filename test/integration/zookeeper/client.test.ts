// The ZooKeeper client with a real server: its requests and its watches.

import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { WatchedEvent } from "../../../src/drivers/zookeeper/client/records.ts";
import { CREATOR_ALL } from "../../../src/drivers/zookeeper/client/records.ts";
import type { ZooKeeperOptions } from "../../../src/drivers/zookeeper/client/zookeeper.ts";
import { ZooKeeper } from "../../../src/drivers/zookeeper/client/zookeeper.ts";
import { until } from "../../../src/testing/until.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import type { ZooKeeperServer } from "../../support/stores/zookeeper.ts";
import { startZooKeeper } from "../../support/stores/zookeeper.ts";
import { setData } from "../../support/stores/zookeeper-requests.ts";

const TIMEOUT_MS = 20_000;
let server: ZooKeeperServer;
const openClients: ZooKeeper[] = [];
let nextPath = 0;

beforeAll(async () => {
  server = await startZooKeeper();
}, 60_000);

afterAll(() => server[Symbol.asyncDispose]());

afterEach(async () => {
  await Promise.all(openClients.splice(0).map((client) => client.close()));
});

async function openClient(options: Partial<ZooKeeperOptions> = {}): Promise<ZooKeeper> {
  const zooKeeper = new ZooKeeper({ servers: [server.address], sessionMs: 20_000, ...options });
  openClients.push(zooKeeper);
  await zooKeeper.open();
  return zooKeeper;
}

/** A node for this test alone. */
async function createNode(zk: ZooKeeper): Promise<string> {
  return (await zk.create(`/test-${++nextPath}`)).path;
}

test("nodes are created, read, changed, listed and deleted; a refusal names its reason", async () => {
  const zk = await openClient();
  const root = await createNode(zk);
  const created = await zk.create(`${root}/a`, { data: Buffer.from("one") });
  const { data, stat } = await zk.get(`${root}/a`);
  expect(data.toString()).toBe("one");
  expect(stat.czxid).toBe(created.czxid);
  expect((await setData(zk, `${root}/a`, Buffer.from("two"), 0)).version).toBe(1);
  await expect(setData(zk, `${root}/a`, Buffer.from("three"), 0)).rejects.toMatchObject({ code: "BAD_VERSION" });
  await expect(zk.create(`${root}/a`)).rejects.toMatchObject({ code: "NODE_EXISTS" });
  await expect(zk.create(`${root}/b/c`)).rejects.toMatchObject({ code: "NO_NODE" });
  expect((await zk.children(root)).names).toEqual(["a"]);
  await expect(zk.delete(root)).rejects.toMatchObject({ code: "NOT_EMPTY" });
  await zk.delete(`${root}/a`);
  expect(await zk.exists(`${root}/a`)).toBeNull();
  await zk.sync(root);
  expect((await zk.getAcl(root))[0]).toMatchObject({ scheme: "world", id: "anyone" });
});

test("sequential nodes are numbered, ephemeral ones end with their session, a container stays", async () => {
  const [zk, other] = [await openClient(), await openClient()];
  const root = await createNode(zk);
  const first = await zk.create(`${root}/n-`, { mode: "ephemeralSequential" });
  const second = await zk.create(`${root}/n-`, { mode: "ephemeralSequential" });
  expect([first.path, second.path]).toEqual([`${root}/n-0000000000`, `${root}/n-0000000001`]);
  expect(second.czxid).toBeGreaterThan(first.czxid);
  expect((await zk.exists(first.path))?.ephemeralOwner).toBe(zk.sessionId);
  await zk.create(`${root}/box`, { mode: "container" });
  await zk.close();
  await until(async () => (await other.children(root)).names.length === 1, {
    within: TIMEOUT_MS,
    what: "the session to end",
  });
});

test("a multi with several steps succeeds or fails completely, and the failing step is named", async () => {
  const zk = await openClient();
  const root = await createNode(zk);
  await zk.multi([
    { kind: "create", path: `${root}/a`, mode: "ephemeral" },
    { kind: "create", path: `${root}/box`, mode: "container" },
    { kind: "set", path: root, data: Buffer.from("x") },
    { kind: "delete", path: `${root}/box` },
  ]);
  expect((await zk.children(root)).names).toEqual(["a"]);
  expect((await zk.get(root)).data.toString()).toBe("x");
  const failing = zk.multi([
    { kind: "create", path: `${root}/b` },
    { kind: "delete", path: `${root}/missing` },
    { kind: "delete", path: `${root}/a` },
  ]);
  await expect(failing).rejects.toMatchObject({
    code: "NO_NODE",
    message: expect.stringContaining(`delete ${root}/missing`),
  });
  expect((await zk.children(root)).names).toEqual(["a"]);
});

test("a create and the list that follows it are sent in one write, and the list has the node", async () => {
  const zk = await openClient();
  const root = await createNode(zk);
  const [made, { names }] = await Promise.all([
    zk.create(`${root}/n-`, { mode: "ephemeralSequential" }),
    zk.children(root),
  ]);
  expect(names).toEqual([made.path.slice(root.length + 1)]);
});

test("a thousand requests at once are answered, each with its own reply", async () => {
  const zk = await openClient();
  const root = await createNode(zk);
  const nodes = await Promise.all(
    Array.from({ length: 1_000 }, (_, n) => zk.create(`${root}/${n}`, { data: Buffer.from(`${n}`) })),
  );
  const results = await Promise.all(nodes.map(({ path }) => zk.get(path)));
  expect(results.map(({ data }) => Number(data))).toEqual(Array.from({ length: 1_000 }, (_, n) => n));
});

test("a client with a chroot sees nothing above it", async () => {
  const zk = await openClient();
  const root = await createNode(zk);
  const chrootClient = await openClient({ chroot: root });
  const seenWatchedEvents: (WatchedEvent | null)[] = [];
  expect(await chrootClient.exists("/a", (event) => seenWatchedEvents.push(event))).toBeNull();
  expect((await chrootClient.create("/a")).path).toBe("/a");
  expect((await zk.children(root)).names).toEqual(["a"]);
  await until(() => seenWatchedEvents.length === 1, { within: TIMEOUT_MS, what: "the watch" });
  expect(seenWatchedEvents).toEqual([{ kind: "created", path: "/a" }]);
});

test("watches fire once with the event", async () => {
  const [zk, other] = [await openClient(), await openClient()];
  const root = await createNode(zk);
  const events: string[] = [];
  const record = (name: string) => (event: WatchedEvent | null) =>
    events.push(`${name} ${event?.kind ?? "over"} ${event?.path ?? ""}`);
  await zk.exists(`${root}/a`, record("exists"));
  await zk.children(root, record("children"));
  await other.create(`${root}/a`);
  await until(() => events.length === 2, { within: TIMEOUT_MS, what: "both events" });
  await zk.get(`${root}/a`, record("data"));
  await setData(other, `${root}/a`, Buffer.from("x"));
  await other.delete(`${root}/a`);
  await zk.sync(root);
  expect(await zk.exists(`${root}/a`)).toBeNull();
  expect(events).toEqual([`exists created ${root}/a`, `children children ${root}`, `data changed ${root}/a`]);
});

test("watches outlive a connection, however many there are, and report the changes made meanwhile", async () => {
  await using proxy = await tcpProxy(server.address);
  const zk = await openClient({ servers: [proxy.address as { host: string; port: number }] });
  const otherZooKeeper = await openClient();
  const root = await createNode(zk);
  const events: string[] = [];
  // more than one SetWatches2 frame: 2,000 paths of 100 bytes
  const names = Array.from({ length: 2_000 }, (_, n) => `${root}/${"x".repeat(90)}-${n}`);
  await Promise.all(names.map((path) => zk.exists(path, (event) => events.push(event?.path ?? "over"))));
  const { sessionId } = zk;
  proxy.refuseConnections(true);
  proxy.reset();
  await until(() => !zk.isConnected, { within: TIMEOUT_MS, what: "the loss" });
  await otherZooKeeper.create(names[7] as string);
  proxy.refuseConnections(false);
  await until(() => zk.isConnected, { within: TIMEOUT_MS, what: "the next connection" });
  expect(zk.sessionId).toBe(sessionId);
  await otherZooKeeper.create(names[1_999] as string);
  await until(() => events.length === 2, { within: TIMEOUT_MS, what: "both events" });
  expect(new Set(events)).toEqual(new Set([names[7], names[1_999]]));
});

test("digest credentials open nodes that only their owner may read", async () => {
  const [zk, other] = [await openClient({ auth: [{ scheme: "digest", auth: "ana:secret" }] }), await openClient()];
  const root = await createNode(zk);
  await zk.create(`${root}/mine`, { acl: CREATOR_ALL, data: Buffer.from("x") });
  await expect(other.get(`${root}/mine`)).rejects.toMatchObject({ code: "NO_AUTH" });
  expect((await zk.get(`${root}/mine`)).data.toString()).toBe("x");
  expect((await zk.whoAmI()).map(({ scheme, user }) => `${scheme} ${user}`)).toContain("digest ana");
});

test.each([
  ["", "must begin with a slash"],
  ["a", "must begin with a slash"],
  ["/a/", "must not end with a slash"],
  ["/a//b", "must not have an empty part"],
  ["/a/../b", "must not have . or .."],
  ["/a\u0000", "must not have control characters"],
  ["/\ud800", "must not have control characters, surrogates"],
  ["/zookeeper/quota", "must not be the server's own"],
])("the path %j is refused before anything is sent", async (path, reason) => {
  const zk = await openClient();
  await expect((async () => zk.exists(path))()).rejects.toThrow(reason);
  expect(await zk.exists("/\u{1f512}")).toBeNull();
});
