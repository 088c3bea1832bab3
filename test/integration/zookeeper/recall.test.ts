// Held claims that ask for it learn who waits: what is watched for that, and what counts as waiting.

import { expect, test } from "vitest";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { randomId } from "../../../src/util/ids.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import { makeSessionClaim, zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";

const fixture = zookeeperFixture({}, { root: "/recall", sessionMs: 20_000 });

async function openRecorder(): Promise<{ readonly driver: Driver; readonly recalls: string[] }> {
  const driver = fixture.createDriver();
  fixture.clients.push(driver);
  const recalls: string[] = [];
  await driver.open({ ...NO_EVENTS, recalled: (id) => recalls.push(id) });
  return { driver, recalls };
}

const countRequests = async (): Promise<number> =>
  Number(/Received: (\d+)/.exec(await fixture.server.runCommand("srvr"))?.[1]);

test("a node whose claim only tries recalls no holder; the one behind it does when that node is gone", async () => {
  const { driver, recalls } = await openRecorder();
  const holder = makeSessionClaim("tried", { recall: true });
  await driver.claim(holder);
  const data = Buffer.from(JSON.stringify({ v: 1, label: "", tokens: 1, floor: "0", wait: false }));
  const tries = await fixture.observer.create(`/recall/tried/_c_${randomId()}-lock-`, {
    mode: "ephemeralSequential",
    data,
  });
  expect(await driver.renew([holder])).not.toMatchObject([{ recalled: true }]);
  const waiter = makeSessionClaim("tried");
  await driver.claim(waiter);
  expect(await driver.renew([holder])).not.toMatchObject([{ recalled: true }]);
  expect(recalls).toEqual([]);
  await fixture.observer.delete(tries.path);
  await until(() => recalls.length > 0, { within: 5_000, what: "the recall" });
  expect(await driver.renew([holder])).toMatchObject([{ state: "held", recalled: true }]);
  await driver.release(toReleases(holder, waiter));
});

test("a held claim costs one request for that, however many wait, and none without the wish", async () => {
  const { driver } = await openRecorder();
  const costs: number[] = [];
  for (const recall of [false, true]) {
    const claims = Array.from({ length: 20 }, (_, index) => makeSessionClaim(`cost ${recall} ${index}`, { recall }));
    const before = await countRequests();
    for (const claim of claims) await driver.claim(claim);
    await driver.renew(claims);
    costs.push((await countRequests()) - before);
    await driver.release(toReleases(...claims));
  }
  const [without = 0, withRecall = 0] = costs;
  // besides: the pings of the session
  expect(withRecall - without).toBeGreaterThanOrEqual(20);
  expect(withRecall - without).toBeLessThan(25);
});
