// The inspector of ZooKeeper's nodes finds planted faults.

import { afterEach, expect, test } from "vitest";
import { makeContainers } from "../../../src/drivers/zookeeper/client/helpers.ts";
import { OPEN_TO_ALL } from "../../../src/drivers/zookeeper/client/records.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { toReleases } from "../../support/releases.ts";
import { makeSessionClaim, readSpecs, zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";
import { findZooKeeperViolations } from "../../support/stores/zookeeper-inspector.ts";

const ROOT = "/inspected";
const KEY = `${ROOT}/key`;
const fixture = zookeeperFixture({}, { root: ROOT });
const plantedPaths: string[] = [];

/** Created without the driver, each with its own number. */
async function plantNode(
  name: string,
  mode: "ephemeral" | "ephemeralSequential" | "persistent" = "ephemeralSequential",
) {
  const { path } = await fixture.observer.create(`${KEY}/${name}`, { mode });
  plantedPaths.push(path);
}

const findViolations = (): Promise<string[]> => findZooKeeperViolations(fixture.observer, { root: ROOT });

afterEach(async () => {
  for (const path of plantedPaths.splice(0)) await fixture.observer.delete(path);
});

test("the driver's own nodes pass: holders, waiters, readers, permits", async () => {
  const driver = await fixture.openDriver();
  const permit = { locks: [{ key: "permits", permits: 2, limit: 3 }] as const };
  const claims = [
    ...[makeSessionClaim("key"), makeSessionClaim("key"), makeSessionClaim("key", readSpecs("key"))],
    ...[
      makeSessionClaim("read", readSpecs("read")),
      makeSessionClaim("read", readSpecs("read")),
      makeSessionClaim("read"),
    ],
    ...[makeSessionClaim("permits", permit), makeSessionClaim("permits", permit)],
  ];
  for (const claim of claims) await driver.claim(claim);
  expect(await findViolations()).toEqual([]);
  await driver.release(toReleases(...claims));
  expect(await findViolations()).toEqual([]);
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
])("%s", async (_, names, violations) => {
  await fixture.openDriver();
  await fixture.observer.create(KEY, { mode: "container" }).catch(() => undefined);
  for (const name of names) await plantNode(name);
  expect(await findViolations()).toEqual([expect.stringMatching(violations)]);
});

test("the directory of a queue, made and not used yet, has an end: it has had a child", async () => {
  await makeContainers(fixture.observer, `${ROOT}/unused/deep`, OPEN_TO_ALL);
  for (const path of [`${ROOT}/unused`, `${ROOT}/unused/deep`]) {
    expect((await fixture.observer.exists(path))?.cversion).toBeGreaterThan(0);
  }
  expect(await findViolations()).toEqual([]);
});

test("a node without an end and a node without an owner are found", async () => {
  const driver = await fixture.openDriver();
  const claim = makeSessionClaim("key");
  await driver.claim(claim);
  await plantNode("left", "persistent");
  expect(await findViolations()).toEqual([`${KEY}/left has no end`]);
  await plantNode("_c_one-lock-0000000000", "persistent");
  expect(await findViolations()).toHaveLength(2);
  await plantNode("latch", "ephemeral");
  expect(await findViolations()).toContain(`${KEY}/latch belongs to no claim`);
  await driver.release(toReleases(claim));
});

test("two holders in two directories of one key are found", async () => {
  const driver = await fixture.openDriver();
  const claim = makeSessionClaim("key");
  await driver.claim(claim);
  await fixture.observer.create(`${ROOT}/%6Bey`, { mode: "container" });
  const { path } = await fixture.observer.create(`${ROOT}/%6Bey/_c_two-lock-`, { mode: "ephemeralSequential" });
  plantedPaths.push(path);
  expect(await findViolations()).toEqual([expect.stringMatching(/held beyond its limit/)]);
  await driver.release(toReleases(claim));
});
