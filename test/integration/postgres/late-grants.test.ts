/** A server that answers late. */

import { Client } from "pg";
import { expect, test } from "vitest";
import { expectLateGrantsReleased, LATE_GRANTS_TTL_MS } from "../../support/stores/late-grants.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

withPostgres((server) => {
  test("a lock that was granted late, and is released while its claim is repeated, is free at once", async () => {
    const fixture = await createPostgresFixture(server());
    const locks = fixture.locks({ ttl: LATE_GRANTS_TTL_MS });
    await expectLateGrantsReleased(locks, async () => {
      const client = new Client({ connectionString: fixture.database.url });
      await client.connect();
      await client.query("begin; select * from holdfast.holdfast_1_buckets for update");
      return { end: () => client.end() };
    });
    await fixture.closeDrivers();
    expect(await fixture.inspect()).toEqual([]);
    await fixture.close();
  });
});
