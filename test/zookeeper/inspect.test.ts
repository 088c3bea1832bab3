// The inspector of ZooKeeper's nodes finds what it is for.

import { afterEach, expect, test } from "vitest";
import { makeContainers } from "../../src/drivers/zookeeper/client/recipes.ts";
import { OPEN_TO_ALL } from "../../src/drivers/zookeeper/client/records.ts";
import { ALL_PERMITS } from "../../src/spi/driver.ts";
import { zookeeperViolations } from "../support/inspect-zookeeper.ts";
import { claimOf, reading, zookeeperScene } from "../support/zookeeper-scene.ts";

const ROOT = "/inspected";
const KEY = `${ROOT}/key`;
const scene = zookeeperScene({}, { root: ROOT });
const planted: string[] = [];

/** Made past the driver, each with a number of its own. */
async function plant(name: string, mode: "ephemeral" | "ephemeralSequential" | "persistent" = "ephemeralSequential") {
  const { path } = await scene.zk.create(`${KEY}/${name}`, { mode });
  planted.push(path);
}

const found = (): Promise<string[]> => zookeeperViolations(scene.zk, { from: ROOT });

afterEach(async () => {
  for (const path of planted.splice(0)) await scene.zk.delete(path);
});

test("what the driver makes is in order: holders, waiters, readers, permits", async () => {
  const driver = await scene.opened();
  const permit = { holds: [{ key: "permits", permits: 2, limit: 3 }] as const };
  const claims = [
    ...[claimOf("key"), claimOf("key"), claimOf("key", reading("key"))],
    ...[claimOf("read", reading("read")), claimOf("read", reading("read")), claimOf("read")],
    ...[claimOf("permits", permit), claimOf("permits", permit)],
  ];
  for (const claim of claims) await driver.claim(claim);
  expect(await found()).toEqual([]);
  await driver.release(claims);
  expect(await found()).toEqual([]);
});

test.each([
  ["two holders", ["_c_one-lock-", "_c_two-__WRIT__"], /^"\/inspected\/key" is held beyond its limit: one .*two/],
  [
    "an overfull semaphore",
    ["_c_one-p2.3-lock-", "_c_two-p2.3-__READ__"],
    /held beyond its limit: .*\(2 of 3\).*\(2 of 3\)/,
  ],
  ["a reader beside a writer", ["_c_one-__WRIT__", `_c_two-p1.${ALL_PERMITS}-lock-`], /held beyond its limit/],
  ["a holder in a queue", ["_c_one-lock-", "_c_one-lock-"], /^one holds "\/inspected\/key" and stands in its queue$/],
])("%s", async (_, names, wrong) => {
  await scene.opened();
  await scene.zk.create(KEY, { mode: "container" }).catch(() => undefined);
  for (const name of names) await plant(name);
  expect(await found()).toEqual([expect.stringMatching(wrong)]);
});

test("the folder of a queue, made and not used yet, has an end: it has had a child", async () => {
  await makeContainers(scene.zk, `${ROOT}/unused/deep`, OPEN_TO_ALL);
  for (const path of [`${ROOT}/unused`, `${ROOT}/unused/deep`]) {
    expect((await scene.zk.exists(path))?.cversion).toBeGreaterThan(0);
  }
  expect(await found()).toEqual([]);
});

test("a node without an end, and one of nobody", async () => {
  const driver = await scene.opened();
  const claim = claimOf("key");
  await driver.claim(claim);
  await plant("left", "persistent");
  expect(await found()).toEqual([`${KEY}/left has no end`]);
  await plant("_c_one-lock-0000000000", "persistent");
  expect(await found()).toHaveLength(2);
  await plant("latch", "ephemeral");
  expect(await found()).toContain(`${KEY}/latch belongs to no claim`);
  await driver.release([claim]);
});

test("two folders of one key", async () => {
  const driver = await scene.opened();
  const claim = claimOf("key");
  await driver.claim(claim);
  await scene.zk.create(`${ROOT}/%6Bey`, { mode: "container" });
  const { path } = await scene.zk.create(`${ROOT}/%6Bey/_c_two-lock-`, { mode: "ephemeralSequential" });
  planted.push(path);
  expect(await found()).toEqual([expect.stringMatching(/held beyond its limit/)]);
  await driver.release([claim]);
});
