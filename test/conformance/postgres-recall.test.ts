/** What differs with the option recall: PostgreSQL pushes recalls, and its driver listens while it holds locks. */

import { Pool } from "pg";
import { afterAll, beforeAll } from "vitest";
import { postgres, postgresMigration } from "../../src/drivers/sql/postgres/driver.ts";
import { testDriver } from "../client/suite.ts";
import { connectAdmin, LOSE_CLAIMS } from "../support/stores/postgres-fixture.ts";
import { createTopicRunner, SQL_SUITE_OPTIONS } from "../support/stores/sql-conformance.ts";
import { withPostgres } from "../support/stores/sql-fixture.ts";
import { findPostgresViolations } from "../support/stores/sql-inspector.ts";

const TOPICS =
  /^(?:lifecycle|recall|order|lost replies|detach|revoke|close|client: (?:cached locks|hand-off|waiting|close))$/;

withPostgres((server) => {
  let admin: Pool;

  beforeAll(async () => {
    admin = await connectAdmin(server().url);
    await admin.query(postgresMigration());
  });

  afterAll(() => admin.end());

  testDriver(createTopicRunner(TOPICS), "PostgreSQL with recall", {
    ...SQL_SUITE_OPTIONS,
    traits: { manyKeys: false, recall: "push" },
    open: async () => {
      await admin.query(LOSE_CLAIMS);
      return {
        driver: () =>
          postgres(() => new Pool({ connectionString: server().url, max: 4 }), {
            recall: true,
            silenceWarnings: ["durability"],
          }),
        inspect: () => findPostgresViolations(async (text) => (await admin.query(text)).rows),
      };
    },
  });
});
