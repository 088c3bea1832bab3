// The command line while another session has the table of claims locked.

import { createConnection } from "mysql2/promise";
import { onTestFinished, test } from "vitest";
import { cliSandbox } from "../../support/cli-sandbox.ts";
import { expectLockedTableToBeNamed } from "../../support/stores/locked-tables.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

const sandbox = cliSandbox();

withMariaDb((server) => {
  test("a locked table is the cause that the commands report, in time", async () => {
    const database = await server().freshDatabase();
    await sandbox.run(["run", "key", "--", "true"], { env: { HOLDFAST_URL: database.url } });
    const connection = await createConnection(database.url);
    onTestFinished(() => connection.end());
    await connection.query("lock tables holdfast_4_claims write");
    await expectLockedTableToBeNamed(sandbox, database.url);
  }, 40_000);
});
