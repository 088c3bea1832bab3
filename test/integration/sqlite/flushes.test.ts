/** Which commits wait for the disk: those that a loss of power must not undo. */

import Database from "libsql";
import { beforeEach, expect, test, vi } from "vitest";
import { sqlite } from "../../../src/drivers/sql/sqlite/driver.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, makeClaim, onCleanup } from "../../support/server-fixture.ts";
import { useSqliteFiles } from "../../support/stores/sqlite.ts";

const newFile = useSqliteFiles();
cleanUpAfterEach();

/** What the drivers run, transactions and settings. */
const executed: string[] = [];
beforeEach(() => {
  const { DatabaseSync: Library = Database } = (process.getBuiltinModule("node:sqlite" as "node:module") ?? {}) as {
    readonly DatabaseSync?: { readonly prototype: { exec(text: string): void } };
  };
  const { exec } = Library.prototype;
  const spy = vi.spyOn(Library.prototype, "exec").mockImplementation(function (this: unknown, text: string) {
    executed.push(text);
    return exec.call(this as never, text) as never;
  });
  onCleanup(() => spy.mockRestore());
});

async function openDriver(source: Parameters<typeof sqlite>[0] = newFile()): Promise<Driver> {
  const driver = sqlite(source, { silenceWarnings: ["mode", "journal"] });
  await driver.open(NO_EVENTS);
  onCleanup(() => driver.close());
  return driver;
}

/** Runs `work`; how each of its commits was written. */
async function recordCommits(work: () => Promise<unknown>): Promise<string[]> {
  executed.length = 0;
  await work();
  const commits: string[] = [];
  let level = "full";
  for (const text of executed) {
    level = /^pragma synchronous = (\w+)$/.exec(text)?.[1] ?? level;
    if (text === "commit") commits.push(level);
  }
  expect(level).toBe("full");
  return commits;
}

test("a grant is flushed, and a release that grants nothing is not", async () => {
  const driver = await openDriver();
  const claim = makeClaim("k");
  expect(await recordCommits(() => driver.claim(claim))).toEqual(["full"]);
  expect(await recordCommits(() => driver.release(toReleases(claim)))).toEqual(["normal"]);
});

test("a release that grants, and one that refuses a late claim, is flushed", async () => {
  const driver = await openDriver();
  const [held, waiting, late] = [makeClaim("k"), makeClaim("k"), makeClaim("k")];
  await driver.claim(held);
  await driver.claim(waiting);
  expect(await recordCommits(() => driver.release(toReleases(held)))).toEqual(["full"]);
  expect(executed).toContain("rollback");
  expect(await driver.renew([waiting])).toMatchObject([{ state: "held" }]);
  const releases = [{ claim: late, hasUnansweredClaim: true }];
  expect(await recordCommits(() => driver.release(releases))).toEqual(["full"]);
  expect(await driver.claim(late)).toMatchObject({ state: "none", reason: "released" });
});

test("a release that shares a transaction with a claim is flushed", async () => {
  const driver = await openDriver();
  const [held, other] = [makeClaim("k"), makeClaim("other")];
  await driver.claim(held);
  const commits = await recordCommits(() => Promise.all([driver.release(toReleases(held)), driver.claim(other)]));
  // two, if the first call took long
  expect(new Set(commits)).toEqual(new Set(["full"]));
});

test("a handle of the user keeps its setting", async () => {
  const handle = new Database(newFile());
  onCleanup(() => void handle.close());
  const driver = await openDriver(handle);
  const claim = makeClaim("k");
  await driver.claim(claim);
  executed.length = 0;
  await driver.release(toReleases(claim));
  expect(executed.filter((text) => text.startsWith("pragma synchronous"))).toEqual([]);
});
