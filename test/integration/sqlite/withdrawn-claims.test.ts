/** Requests that a program gives up before their calls have run: nothing is written for them. */

import Database from "libsql";
import { expect, test } from "vitest";
import { sqlite } from "../../../src/drivers/sql/sqlite/driver.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import { expectHeld, makeClaim } from "../../support/server-fixture.ts";
import { useSqliteFiles } from "../../support/stores/sqlite.ts";

const newFile = useSqliteFiles();

test("claims that are released while another program writes are never made, and keep no other release waiting", async () => {
  const path = newFile();
  const driver = sqlite(path);
  await driver.open(NO_EVENTS);
  const [held, repeated] = [makeClaim("held"), makeClaim("busy")];
  expectHeld(await driver.claim(held));
  const database = new Database(path);
  database.exec("begin immediate");
  const givenUp = Array.from({ length: 2_000 }, () => makeClaim("busy"));
  const calls = givenUp.map((claim) => driver.claim(claim));
  const twice = [driver.claim(repeated), driver.claim(repeated)];
  expect(await driver.release(givenUp.map((claim) => ({ claim, hasUnansweredClaim: true })))).toEqual(
    givenUp.map(() => false),
  );
  const released = driver.release(toReleases(held));
  database.exec("commit");
  expect(await released).toEqual([true]);
  expect(new Set((await Promise.all(calls)).map(({ state }) => state))).toEqual(new Set(["none"]));
  const [first, second] = await Promise.all(twice);
  expect(expectHeld(first).token).toBe(expectHeld(second).token);
  const rows = (table: string): unknown =>
    database.prepare(`select count(*) as count from holdfast_2_${table}`).all()[0];
  expect([rows("claims"), rows("tombstones")]).toEqual([{ count: 1 }, { count: 0 }]);
  expect(await driver.release(toReleases(repeated))).toEqual([true]);
  database.close();
  await driver.close();
});
