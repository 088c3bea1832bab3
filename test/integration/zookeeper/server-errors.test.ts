// Permanent refusals by the servers are reported as such and leave nothing; a refusal of one path is no outage.

import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { ZooKeeper } from "../../../src/drivers/zookeeper/client/zookeeper.ts";
import { zookeeper } from "../../../src/drivers/zookeeper/driver.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import { startZooKeeper } from "../../support/stores/zookeeper.ts";
import { makeSessionClaim, zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";
import { setAcl } from "../../support/stores/zookeeper-requests.ts";
import { createFrameProxy } from "./frame-proxy.ts";

const TIMEOUT_MS = 20_000;
const [READ, WRITE, CREATE, DELETE, ADMIN] = [1, 2, 4, 8, 16];
const LONG_TEXT = process.env.HOLDFAST_LONG === "1";
const fixture = zookeeperFixture({}, { root: "/refusals" });

/** A client, and the events of its store and its locks. */
function openListeningDriver(): { readonly locks: Locks; readonly events: string[] } {
  const locks = createLocks(fixture.createDriver());
  fixture.clients.push(locks);
  const events: string[] = [];
  for (const event of ["storeDown", "storeUp", "jeopardy", "lost"] as const) locks.on(event, () => events.push(event));
  return { locks, events };
}

test("repeated refusals of one path are no outage", async () => {
  const { locks, events } = openListeningDriver();
  await fixture.observer.create("/strange", { mode: "container" });
  await fixture.observer.create("/strange/kazoo-__lock__0000000000");
  const ownLock = await locks.acquire("own");
  for (let times = 0; times < 20; times++) {
    await expect(locks.acquire("/strange", { wait: "10s" })).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED" });
  }
  expect(events).toEqual([]);
  expect(await ownLock.release()).toBe(true);
  await fixture.observer.delete("/strange/kazoo-__lock__0000000000");
});

test.each([
  ["and we may read its ACL", READ | CREATE | ADMIN],
  ["and its ACL is not for us to read", CREATE],
  ["and we may write", READ | WRITE | CREATE | ADMIN],
])("with the right to create but not to delete, a lock is refused before a node is made, %s", async (_, perms) => {
  const path = `/not-to-delete-${perms}`;
  const { locks } = openListeningDriver();
  const admin = new ZooKeeper({
    servers: [fixture.server.address],
    auth: [{ scheme: "digest", auth: "admin:secret" }],
  });
  fixture.clients.push(admin);
  await admin.open();
  const allPermissions = READ | WRITE | CREATE | DELETE | ADMIN;
  await fixture.observer.create(path, { mode: "persistent" });
  await setAcl(admin, path, [
    { scheme: "world", id: "anyone", perms },
    { scheme: "auth", id: "", perms: allPermissions },
  ]);
  await expect(locks.acquire(path)).rejects.toMatchObject({
    code: "LOCK_STORE_REFUSED",
    message: expect.stringMatching(new RegExp(`no permission to delete nodes in ${path},.*NO_AUTH`)),
  });
  expect((await admin.children(path)).names).toEqual([]);
  const otherLocks = createLocks(fixture.createDriver({ auth: [{ scheme: "digest", auth: "admin:secret" }] }));
  fixture.clients.push(otherLocks);
  await (await otherLocks.acquire(path)).release();
  expect((await admin.children(path)).names).toEqual([]);
});

test("an exceeded quota is reported at once, by name, and leaves nothing", async () => {
  await using server = await startZooKeeper({ properties: { "zookeeper.enforceQuota": "true" } });
  const { host, port } = server.address;
  const zk = new ZooKeeper({ servers: [server.address] });
  const driver = zookeeper({ servers: [server.address], root: "/few", connectTimeout: TIMEOUT_MS });
  try {
    await zk.open();
    await driver.open(NO_EVENTS);
    const first = makeSessionClaim("key");
    expect((await driver.claim(first)).state).toBe("held");
    // the root, the key's directory and one entry
    const main = ["-cp", "/usr/share/java/zookeeper.jar", "org.apache.zookeeper.ZooKeeperMain"];
    const set = spawnSync("java", [...main, "-server", `${host}:${port}`, "setquota", "-N", "3", "/few"]);
    expect(set.status, String(set.stderr)).toBe(0);
    for (const key of ["key", "other"]) {
      const refusal = { code: "LOCK_STORE_REFUSED", message: expect.stringContaining("QUOTA_EXCEEDED") };
      await expect(driver.claim(makeSessionClaim(key))).rejects.toMatchObject(refusal);
    }
    expect((await zk.children("/few")).names).toEqual(["key"]);
    expect((await zk.children("/few/key")).names).toHaveLength(1);
    await driver.release(toReleases(first));
    expect((await driver.claim(makeSessionClaim("key"))).state).toBe("held");
  } finally {
    await driver.close();
    await zk.close();
  }
}, 60_000);

test("a connection that is lost at any byte while the client opens is made again", async () => {
  await using proxy = await tcpProxy(fixture.server.address);
  const servers = [proxy.address as { host: string; port: number }];
  for (const direction of [proxy.toTarget, proxy.toClient]) {
    for (let bytes = 1; bytes < 240; bytes += LONG_TEXT ? 1 : 9) {
      direction.cutAfter(bytes);
      const driver = fixture.createDriver({ servers, root: `/opened-${bytes}`, chroot: "/chroot" });
      await expect(driver.open(NO_EVENTS)).resolves.toBeDefined();
      await driver.close();
    }
  }
}, 60_000);

test("a holder whose node is gone learns of it by a renewal if the event is lost", async () => {
  await using proxy = await createFrameProxy(fixture.server.address, { dropsEvents: true });
  const driver = await fixture.openDriver({ servers: [proxy.address], sessionMs: 4_000 });
  const claims = Array.from({ length: 3 }, (_, index) => makeSessionClaim(`watched-${index}`));
  for (const claim of claims) expect((await driver.claim(claim)).state).toBe("held");
  await driver.renew(claims);
  const [node] = (await fixture.observer.children("/refusals/watched-1")).names;
  await fixture.observer.delete(`/refusals/watched-1/${node}`);
  const before = proxy.requests();
  const states = async (): Promise<(string | undefined)[]> =>
    (await driver.renew(claims)).map((answer) => answer?.state);
  const observedStates = [await states(), await states(), await states()];
  expect(proxy.events(), "events were dropped").toBeGreaterThan(0);
  expect(proxy.requests() - before, "each renewal asks two questions").toBe(6);
  expect(observedStates.at(-1)).toEqual(["held", "none", "held"]);
  await driver.release(toReleases(...claims));
});
