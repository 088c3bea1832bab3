import { expect, test } from "vitest";
import { OP } from "../../../src/drivers/zookeeper/client/records.ts";
import { createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import { expectBulkCancellationLeavesNothing } from "../../support/bulk-cancellation.ts";
import { zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";
import { createFrameProxy } from "./frame-proxy.ts";

const fixture = zookeeperFixture({}, { root: "/crowd" });

const countEntries = async (key: string): Promise<number> =>
  (await fixture.observer.children(`/crowd/${key}`)).names.length;

test("2,000 waits that end at once cost no other client a lock and leave no node: ZooKeeper", async () => {
  await expectBulkCancellationLeavesNothing({ createDriver: () => fixture.createDriver(), countEntries });
}, 90_000);

test("2,000 waits that one client begins and aborts cost no client of a short session a lock, and few requests", async () => {
  const [waits, sessionMs, abortedWithinMs] = [2_000, 6_000, 1_500];
  await using proxy = await createFrameProxy(fixture.server.address, { dropsEvents: false });
  const far = createLocks(fixture.createDriver());
  const writer = await far.rw("hot").write.acquire();
  const lost: string[] = [];
  const clients = Array.from({ length: 5 }, (_, index) => {
    const servers = [index === 0 ? proxy.address : fixture.server.address];
    const locks = createLocks(fixture.createDriver({ servers, sessionMs }));
    locks.on("lost", ({ keys }) => void lost.push(keys.join()));
    return locks;
  });
  const [crowded] = clients as [(typeof clients)[number]];
  const held = await Promise.all(clients.map((locks, index) => locks.acquire(`unrelated ${index}`)));
  // the client knows the node of the key, so the next requests are sent in the turn in which they are made
  expect(await crowded.rw("hot").read.tryAcquire()).toBeNull();
  const aborts = Array.from({ length: waits }, () => new AbortController());
  const requests = aborts.map((abort) => {
    const pending = crowded.rw("hot").read.acquire({ signal: abort.signal });
    return pending.then(
      () => expect.unreachable("the key is held"),
      () => undefined,
    );
  });
  for (const [index, abort] of aborts.entries()) setTimeout(() => abort.abort(), (index * abortedWithinMs) / waits);
  await Promise.all(requests);
  await until(async () => (await countEntries("hot")) === 1, { within: 30_000, what: "the nodes of the crowd to go" });
  // each lock is renewed after that: nine tenths of the session are left then
  const renewedUntil = performance.now() + 0.85 * sessionMs;
  await until(() => held.every((lock) => performance.now() + lock.remainingMs > renewedUntil), {
    within: 10_000,
    what: "the locks to be renewed",
  });
  expect(lost).toEqual([]);
  const creates = proxy.requests(OP.create2);
  expect(creates).toBeGreaterThanOrEqual(waits);
  // a list is as long as the queue, so one for each wait would be four million names
  expect(proxy.requests(OP.getChildren2)).toBeLessThan(creates / 10);
  expect(proxy.requests(OP.exists)).toBeLessThan(creates / 10);
  expect(proxy.requests(OP.sync)).toBeLessThan(creates / 10);
  expect(proxy.requests(OP.delete)).toBeLessThanOrEqual(creates);
  for (const lock of [...held, writer]) expect(await lock.release()).toBe(true);
  await Promise.all([...clients, far].map((locks) => locks.close()));
}, 60_000);
