/** Releases that a restored copy of the file lacks: it has claims that are gone, and their process releases them again. */

import Database from "libsql";
import { expect, test } from "vitest";
import { toReference } from "../../../src/client/transfer.ts";
import { quorum } from "../../../src/drivers/quorum/driver.ts";
import { sqlite } from "../../../src/drivers/sql/sqlite/driver.ts";
import { createLocks } from "../../../src/index.ts";
import type { DetachedClaim } from "../../../src/protocol/lock-reference.ts";
import { decodeReference } from "../../../src/protocol/lock-reference.ts";
import { until } from "../../../src/testing/until.ts";
import { SqliteInspector, useSqliteFiles } from "../../support/stores/sqlite.ts";

const newFile = useSqliteFiles();
const openDriver = (path: string) => sqlite(path, { commandTimeoutMs: 50 });

/** Another program writes for longer than a call may take: calls fail. */
async function keepBusy(
  paths: readonly string[],
  work: (writers: readonly Database.Database[]) => Promise<void>,
): Promise<void> {
  const writers = paths.map((path) => new Database(path));
  for (const writer of writers) writer.exec("begin immediate");
  await work(writers);
  for (const writer of writers) {
    writer.exec("commit");
    writer.close();
  }
}

test("the claim of a lock that was released is released again after calls have failed", async () => {
  const path = newFile();
  const locks = createLocks(openDriver(path));
  const lock = await locks.acquire("key");
  const inspector = new SqliteInspector(path);
  const [claim] = inspector.query("select * from holdfast_2_claims") as [object];
  await lock.release();
  const isDown = new Promise<unknown>((resolve) => void locks.on("storeDown", resolve));
  let using: Promise<void> = Promise.resolve();
  await keepBusy([path], async ([writer]) => {
    const columns = Object.keys(claim);
    const text = `insert into holdfast_2_claims (${columns}) values (${columns.map(() => "?")})`;
    (writer as Database.Database).prepare(text).run(...Object.values(claim));
    using = locks.using("other key", () => undefined);
    await isDown;
  });
  await using;
  const countClaims = () => inspector.query("select id from holdfast_2_claims").length;
  await until(async () => countClaims() === 0, { within: 5_000, what: "the release" });
  await locks.close();
});

test("a claim that another process uses, and that this one renewed once, is not released", async () => {
  const path = newFile();
  const parent = createLocks(openDriver(path));
  const lock = await parent.acquire("key");
  const [{ claim }] = decodeReference(toReference(lock)) as [DetachedClaim];
  const driver = openDriver(path);
  const child = createLocks(driver);
  await child.using("other key", () => undefined);
  // as attach() does, of which the answer is lost
  expect(await driver.renew([claim])).toMatchObject([{ state: "held" }]);
  const isDown = new Promise<unknown>((resolve) => void child.on("storeDown", resolve));
  let using: Promise<void> = Promise.resolve();
  await keepBusy([path], async () => {
    using = child.using("other key", () => undefined);
    await isDown;
  });
  await using;
  for (let times = 0; times < 3; times++) await child.using("other key", () => undefined);
  expect(await lock.release()).toBe(true);
  await parent.close();
  await child.close();
});

test("a majority keeps its votes and its tokens", async () => {
  const paths = [newFile(), newFile(), newFile()];
  const locks = createLocks(quorum(paths.map(openDriver)));
  const lock = await locks.acquire("key");
  const readIds = () =>
    paths.map((path) =>
      new SqliteInspector(path).query("select id from holdfast_2_claims where key like 'key%' order by id"),
    );
  // a vote and a token claim at each; the lock is granted when a majority has answered
  await until(async () => readIds().every(({ length }) => length === 2), { within: 5_000, what: "the third member" });
  const before = readIds();
  const isDown = new Promise<unknown>((resolve) => void locks.on("storeDown", resolve));
  let using: Promise<void> = Promise.resolve();
  await keepBusy(paths, async () => {
    using = locks.using("other key", () => undefined);
    await isDown;
  });
  await using;
  for (let times = 0; times < 3; times++) await locks.using("other key", () => undefined);
  expect(readIds()).toEqual(before);
  expect(await lock.release()).toBe(true);
  // it is answered when a majority has answered
  await until(async () => readIds().flat().length === 0, { within: 5_000, what: "the release at the third member" });
  await locks.close();
});
