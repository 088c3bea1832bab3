/** A process whose own requests flood the database (test/support/own-flood.ts). */

import { Pool } from "pg";
import { test } from "vitest";
import { postgres } from "../../../src/drivers/sql/postgres/driver.ts";
import { expectOwnFloodHarmless } from "../../support/own-flood.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

withPostgres((server) => {
  test("its locks survive, and nothing is left", { timeout: 120_000 }, async () => {
    const fixture = await createPostgresFixture(server());
    await expectOwnFloodHarmless({
      ttlMs: 3_000,
      createDriver: () =>
        postgres(() => new Pool({ connectionString: fixture.database.url, max: 10 }), {
          silenceWarnings: ["durability"],
        }),
      // each transaction that writes takes a number; the views of statistics are behind by a second or more
      async countCalls() {
        const [row] = await server().query("select pg_snapshot_xmax(pg_current_snapshot())::text as count");
        return Number(row?.count);
      },
    });
    await fixture.close();
  });
});
