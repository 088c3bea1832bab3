// A process that is stopped in a fenced transaction: apart from the other tests of fence(), which need no built program.

import { createPool } from "mysql2/promise";
import { onTestFinished } from "vitest";
import { expectStoppedTransactionRefused } from "../../support/processes/fenced-transaction.ts";
import { test } from "../../support/processes/process-harness.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

type Rows = readonly Readonly<Record<string, unknown>>[];

withMariaDb((server) => {
  test("a process that is stopped in its fenced transaction beyond its lease cannot commit when it resumes", async ({
    harness,
  }) => {
    const { url } = await server().freshDatabase();
    const pool = createPool({ uri: url });
    onTestFinished(() => pool.end());
    await pool.query("create table data (seq int auto_increment primary key, who varchar(100))");
    await expectStoppedTransactionRefused(harness, `${url}?silenceWarnings=durability`, url, {
      pool,
      query: async (text) => (await pool.query(text))[0] as Rows,
      async begin() {
        const connection = await pool.getConnection();
        await connection.query("set transaction isolation level read committed");
        await connection.beginTransaction();
        return {
          handle: connection,
          query: async (text) => (await connection.query(text))[0] as Rows,
          async commit() {
            await connection.commit();
            connection.release();
          },
        };
      },
    });
  });
});
