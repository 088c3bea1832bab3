import { Pool } from "pg";
import type { TestAPI } from "vitest";
import { afterAll, beforeAll, describe, test } from "vitest";
import { postgres, postgresMigration } from "../../src/drivers/sql/postgres/driver.ts";
import { testDriver } from "../client/suite.ts";
import { leakCheckedTest } from "../support/leak-checked-test.ts";
import { connectAdmin, LOSE_CLAIMS } from "../support/stores/postgres-fixture.ts";
import { REDIS_SUITE_OPTIONS } from "../support/stores/redis-conformance.ts";
import { withPostgres } from "../support/stores/sql-fixture.ts";
import { findPostgresViolations } from "../support/stores/sql-inspector.ts";

withPostgres((server) => {
  let admin: Pool;

  beforeAll(async () => {
    admin = await connectAdmin(server().url);
    await admin.query(postgresMigration());
  });

  afterAll(() => admin.end());

  testDriver({ describe, test: leakCheckedTest(test as TestAPI) }, "PostgreSQL by pg", {
    ...REDIS_SUITE_OPTIONS,
    traits: { manyKeys: false, recall: "recheck" },
    // a call costs a commit, and several statements of the server
    timeScale: 1,
    keys: process.env.HOLDFAST_LONG === "1" ? 100_000 : 300,
    open: async () => {
      // creating the tables takes longer than most tests
      await admin.query(LOSE_CLAIMS);
      return {
        driver: () =>
          postgres(() => new Pool({ connectionString: server().url, max: 4 }), { silenceWarnings: ["durability"] }),
        inspect: () => findPostgresViolations(async (text) => (await admin.query(text)).rows),
      };
    },
  });
});
