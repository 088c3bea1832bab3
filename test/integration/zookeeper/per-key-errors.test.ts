// An error with one key affects that key alone: the other keys of the client are renewed as before.

import { expect, test } from "vitest";
import { CREATOR_ALL, OPEN_TO_ALL } from "../../../src/drivers/zookeeper/client/records.ts";
import { ZooKeeper } from "../../../src/drivers/zookeeper/client/zookeeper.ts";
import type { Answer } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { toReleases } from "../../support/releases.ts";
import { makeSessionClaim, zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";
import { setAcl } from "../../support/stores/zookeeper-requests.ts";

const TIMEOUT_MS = 20_000;
const fixture = zookeeperFixture({}, { root: "/apart", sessionMs: 20_000 });
const answerStates = (answers: readonly (Answer | undefined)[]): (string | undefined)[] =>
  answers.map((answer) => answer?.state);

test("a path that became unreadable ends the claims that wait there, and no others", async () => {
  const driver = await fixture.openDriver();
  const [holder, waiter, held, waiting] = [
    makeSessionClaim("bad"),
    makeSessionClaim("bad"),
    makeSessionClaim("good"),
    makeSessionClaim("good"),
  ];
  for (const claim of [holder, waiter, held, waiting]) await driver.claim(claim);
  const admin = new ZooKeeper({ servers: [fixture.server.address], auth: [{ scheme: "digest", auth: "admin:x" }] });
  fixture.clients.push(admin);
  await admin.open();
  await setAcl(admin, "/apart/bad", CREATOR_ALL);
  expect(answerStates(await driver.renew([held, waiter, waiting, holder]))).toEqual([
    "held",
    "none",
    "waiting",
    "held",
  ]);
  await expect(driver.claim(makeSessionClaim("bad"))).rejects.toMatchObject({
    code: "LOCK_STORE_REFUSED",
    message: expect.stringContaining("NO_AUTH"),
  });
  await setAcl(admin, "/apart/bad", OPEN_TO_ALL);
  await driver.release(toReleases(held, waiting, holder));
});

test("a node that may no longer be deleted prevents no other release", async () => {
  const driver = await fixture.openDriver();
  const [keptClaim, freeClaim] = [makeSessionClaim("kept"), makeSessionClaim("free")];
  for (const claim of [keptClaim, freeClaim]) await driver.claim(claim);
  // all rights but delete
  await setAcl(fixture.observer, "/apart/kept", [{ perms: 31 - 8, scheme: "world", id: "anyone" }]);
  expect(await driver.release(toReleases(keptClaim, freeClaim))).toEqual([false, true]);
  expect((await fixture.observer.children("/apart/free")).names).toEqual([]);
  await driver.close();
  expect((await fixture.observer.children("/apart/kept")).names, "with our session").toEqual([]);
});

test("unreadable nodes are left out of lists, and a direct query for one is refused", async () => {
  const auth = [{ scheme: "digest", auth: "ana:x" }];
  const [ana, anybody] = [await fixture.openDriver({ auth, acl: CREATOR_ALL }), await fixture.openDriver()];
  const [secret, open, half] = [
    makeSessionClaim("list-secret"),
    makeSessionClaim("list-open"),
    makeSessionClaim("list-half"),
  ];
  await ana.claim(secret);
  await anybody.claim(open);
  await ana.claim(half);
  const admin = new ZooKeeper({ servers: [fixture.server.address], auth });
  fixture.clients.push(admin);
  await admin.open();
  await setAcl(admin, "/apart/list-half", OPEN_TO_ALL);
  const listedItems = (await anybody.list({ prefix: "list-" }, { max: 10 })).items;
  expect(listedItems.map(({ locks, label, answer }) => [locks[0].key, label, answer.state])).toEqual([
    ["list-half", "(data not readable)", "held"],
    ["list-open", "test", "held"],
  ]);
  await expect(anybody.list({ prefix: "list-secret" }, { max: 10 })).rejects.toMatchObject({
    code: "LOCK_STORE_REFUSED",
  });
  expect((await ana.list({ prefix: "list-" }, { max: 10 })).items).toHaveLength(3);
  const target = { key: "list-secret", token: 1n, now: true };
  await expect(anybody.revoke?.([target])).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED" });
  await ana.release(toReleases(secret, half));
  await anybody.release(toReleases(open));
});

test("an entry abandoned while the connection breaks leaves no node: the next renewal deletes it", async () => {
  await using proxy = await tcpProxy(fixture.server.address);
  const driver = await fixture.openDriver({ servers: [proxy.address as { host: string; port: number }] });
  const [holder, waiter] = [makeSessionClaim("cut"), makeSessionClaim("cut")];
  for (const claim of [holder, waiter]) await driver.claim(claim);
  const foreignNode = (await fixture.observer.create("/apart/cut/latch-", { mode: "ephemeralSequential" })).path;
  // the list gets through, the delete that follows from it does not
  (await driver.list({ prefix: "cut" }, { max: 10 })).items;
  proxy.toTarget.cutAfter(60);
  await expect(driver.renew([waiter])).rejects.toMatchObject({ code: "CONNECTION_LOSS" });
  expect((await fixture.observer.children("/apart/cut")).names).toHaveLength(3);
  await until(async () => (await driver.renew([waiter]).catch(() => null))?.[0]?.state === "none", {
    within: TIMEOUT_MS,
    what: "the end of its wait",
  });
  expect((await fixture.observer.children("/apart/cut")).names).toHaveLength(2);
  await fixture.observer.delete(foreignNode);
  await driver.release(toReleases(holder));
});
