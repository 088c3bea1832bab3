// The functions need read committed: at a higher level two calls grant one key, since neither sees what the other commits.

import { Client } from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { postgres } from "../../../src/drivers/sql/postgres/driver.ts";
import { makeClaim } from "../../support/claims.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import { startPgBouncer } from "../../support/stores/pgbouncer.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

withPostgres((server) => {
  let fixture: PostgresFixture;
  beforeEach(async () => {
    fixture = await createPostgresFixture(server());
  });
  afterEach(() => fixture.close());

  describe.each(["repeatable read", "serializable"])("sessions that begin at %s", (level) => {
    beforeEach(() =>
      fixture.database.query(`alter database ${fixture.database.name} set default_transaction_isolation = '${level}'`),
    );

    test("64 first claims of one key: one is held, and the driver warns of the cost", async () => {
      const [one, other] = [await fixture.open({ max: 16 }), await fixture.open({ max: 16 })];
      const claims = Array.from({ length: 64 }, () => makeClaim("key"));
      const answers = await Promise.all(
        claims.map((claim, index) => (index % 2 === 0 ? one : other).driver.claim(claim)),
      );
      expect(answers.filter((answer) => answer.state === "held")).toHaveLength(1);
      expect(answers.filter((answer) => answer.state === "waiting")).toHaveLength(63);
      expect(await fixture.inspect()).toEqual([]);
      expect(fixture.warnings[0]).toContain(`the default isolation level is ${level}`);
    });

    test("a client that is a single connection works, too", async () => {
      const client = new Client(fixture.database.url);
      await client.connect();
      const driver = postgres(client, { silenceWarnings: ["durability", "isolation", "push"] });
      await driver.open(NO_EVENTS);
      const [held, refused] = [makeClaim("key"), makeClaim("key", { wait: false })];
      expect(await driver.claim(held)).toMatchObject({ state: "held" });
      expect(await driver.claim(refused)).toMatchObject({ state: "none" });
      expect(await driver.release(toReleases(held))).toEqual([true]);
      await driver.close();
      await client.end();
    });
  });

  test("a function called by hand inside a transaction at repeatable read refuses to run", async () => {
    await fixture.open();
    const client = new Client(fixture.database.url);
    await client.connect();
    await client.query("begin isolation level repeatable read");
    const call = client.query("select holdfast.holdfast_1_release('id', '1000', '0', '0', '', 0)");
    await expect(call).rejects.toMatchObject({ code: "HF001" });
    await client.end();
  });

  test("an isolation level that another client left behind in a pooler is noticed at each call", async () => {
    const pooler = await startPgBouncer(server().port, { poolSize: 2 });
    const url = pooler.urlOf(fixture.database.name);
    const { driver } = await fixture.open({ url });
    const leaky = new Client(url);
    await leaky.connect();
    await leaky.query("set default_transaction_isolation = 'repeatable read'");
    await leaky.end();
    const claims = Array.from({ length: 32 }, () => makeClaim("key"));
    const answers = await Promise.all(claims.map((claim) => driver.claim(claim)));
    expect(answers.filter(({ state }) => state === "held")).toHaveLength(1);
    expect(await driver.release(toReleases(...claims))).toEqual(claims.map(() => true));
    expect(await fixture.inspect()).toEqual([]);
    await fixture.closeDrivers();
    await pooler.dispose();
  });
});
