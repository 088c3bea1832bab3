// The command line while another session has the table of claims locked.

import { Client } from "pg";
import { onTestFinished, test } from "vitest";
import { cliSandbox } from "../../support/cli-sandbox.ts";
import { expectLockedTableToBeNamed } from "../../support/stores/locked-tables.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const sandbox = cliSandbox();

withPostgres((server) => {
  test("a locked table is the cause that the commands report, in time", async () => {
    const database = await server().freshDatabase();
    await sandbox.run(["run", "key", "--", "true"], { env: { HOLDFAST_URL: database.url } });
    const client = new Client(database.url);
    await client.connect();
    onTestFinished(() => client.end());
    await client.query("begin");
    await client.query("lock table holdfast.holdfast_1_claims in access exclusive mode");
    await expectLockedTableToBeNamed(sandbox, database.url);
  }, 40_000);
});
