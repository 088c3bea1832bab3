// A process that is stopped in a fenced transaction: apart from the other tests of fence(), which need no built program.

import pg from "pg";
import { onTestFinished } from "vitest";
import { expectStoppedTransactionRefused } from "../../support/processes/fenced-transaction.ts";
import { test } from "../../support/processes/process-harness.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

withPostgres((server) => {
  test("a process that is stopped in its fenced transaction beyond its lease cannot commit when it resumes", async ({
    harness,
  }) => {
    const { url } = await server().freshDatabase();
    const pool = new pg.Pool({ connectionString: url });
    onTestFinished(() => pool.end());
    await pool.query("create table data (seq serial primary key, who text)");
    await expectStoppedTransactionRefused(harness, `${url}?silenceWarnings=durability`, url, {
      pool,
      query: async (text) => (await pool.query(text)).rows,
      async begin() {
        const client = await pool.connect();
        await client.query("begin isolation level read committed");
        return {
          handle: client,
          query: async (text) => (await client.query(text)).rows,
          async commit() {
            await client.query("commit");
            client.release();
          },
        };
      },
    });
  });
});
