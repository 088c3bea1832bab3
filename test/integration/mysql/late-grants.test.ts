/** A server that answers late. */

import { expect, test } from "vitest";
import { createLocks } from "../../../src/index.ts";
import { expectLateGrantsReleased, LATE_GRANTS_TTL_MS } from "../../support/stores/late-grants.ts";
import { createMysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

withMariaDb((server) => {
  test("a lock that was granted late, and is released while its claim is repeated, is free at once", async () => {
    const fixture = createMysqlFixture(await server().freshDatabase());
    const locks = createLocks(fixture.driver(), { ttl: LATE_GRANTS_TTL_MS });
    await expectLateGrantsReleased(locks, async () => {
      const connection = await fixture.pool().promise().getConnection();
      await connection.query("begin");
      await connection.query("select * from holdfast_4_buckets for update");
      return {
        async end() {
          await connection.query("rollback");
          connection.release();
        },
      };
    });
    await locks.close();
    expect(await fixture.violations(true)).toEqual([]);
    await fixture.close();
    await fixture.database.drop();
  });
});
