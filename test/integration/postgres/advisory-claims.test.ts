// Claims on advisory locks of PostgreSQL, each step as the server shows it.

import { Pool } from "pg";
import { afterEach, beforeEach, expect, test } from "vitest";
import { postgresAdvisory } from "../../../src/drivers/sql/postgres/driver.ts";
import type { Answer, Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { toDriverEvents } from "../../support/driver-events.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import { readAdvisoryLocks } from "../../support/stores/postgres-advisory.ts";
import type { TestDatabase } from "../../support/stores/sql-database.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

checkLeaksAfterEach();

withPostgres((server) => {
  let database: TestDatabase;
  let driver: Driver;
  let pushes: Map<string, Answer | undefined>;
  beforeEach(async () => {
    database = await server().freshDatabase();
    driver = postgresAdvisory(() => new Pool({ connectionString: database.url }));
    pushes = new Map();
    await driver.open(
      toDriverEvents((id, answer) => {
        if (id !== null) pushes.set(id, answer);
      }),
    );
  });
  afterEach(async () => {
    await driver.close();
    await database.drop();
  });

  const countGranted = async () => (await readAdvisoryLocks(database.query)).filter((lock) => lock.isGranted).length;

  test("two claims of one key share no lock, although they share a connection", async () => {
    const [first, second] = [makeClaim("key"), makeClaim("key")];
    expect(await driver.claim(first)).toMatchObject({ state: "held" });
    expect(await driver.claim(second)).toMatchObject({ state: "waiting" });
    expect(await driver.release(toReleases(first))).toEqual([true]);
    await until(() => pushes.get(second.id)?.state === "held", { within: 5_000, what: "the grant" });
    expect(await countGranted()).toBe(1);
    expect(await driver.release(toReleases(second))).toEqual([true]);
    expect(await countGranted()).toBe(0);
  });

  test("a `claim` call that arrives after the release of its claim takes no lock", async () => {
    const claim = makeClaim("key");
    await driver.claim(claim);
    await driver.release(toReleases(claim));
    expect(await driver.claim(claim)).toEqual({ state: "none" });
    expect(await countGranted()).toBe(0);
  });

  test("the holders on a connection that ends are told that their leases are over", async () => {
    const [first, second] = [makeClaim("a"), makeClaim("b")];
    for (const claim of [first, second]) expect(await driver.claim(claim)).toMatchObject({ state: "held" });
    const [lock] = await readAdvisoryLocks(database.query);
    await database.query("select pg_terminate_backend($1::int)", [lock?.pid]);
    await until(() => pushes.size === 2, { within: 5_000, what: "the end of both" });
    expect([first, second].map(({ id }) => pushes.get(id))).toMatchObject([{ state: "none" }, { state: "none" }]);
    expect(await driver.claim(first)).toMatchObject({ state: "none" });
    expect(await countGranted()).toBe(0);
  });
});
