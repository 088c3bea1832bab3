/** A process whose own requests flood the database (test/support/own-flood.ts). */

import { createPool } from "mysql2";
import { test } from "vitest";
import { mysql } from "../../../src/drivers/sql/mysql/driver.ts";
import { expectOwnFloodHarmless } from "../../support/own-flood.ts";
import { createMysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

withMariaDb((server) => {
  test("its locks survive, and nothing is left", { timeout: 120_000 }, async () => {
    const fixture = createMysqlFixture(await server().freshDatabase());
    await expectOwnFloodHarmless({
      ttlMs: 3_000,
      createDriver: () =>
        mysql(() => createPool({ uri: fixture.database.url, connectionLimit: 10 }), {
          silenceWarnings: ["durability"],
        }),
      async countCalls() {
        const [row] = await server().query("show global status like 'Com_call_procedure'");
        return Number(row?.Value);
      },
    });
    await fixture.close();
  });
});
