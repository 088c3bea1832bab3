/** The suite on PostgreSQL by the other clients: postgres.js, and a single Client of pg, which has no pushes. */

import type { Pool } from "pg";
import { Client } from "pg";
import postgresJs from "postgres";
import { afterAll, beforeAll } from "vitest";
import type { PostgresClient } from "../../src/drivers/sql/postgres/driver.ts";
import { postgres, postgresMigration } from "../../src/drivers/sql/postgres/driver.ts";
import { testDriver } from "../client/suite.ts";
import { connectAdmin, LOSE_CLAIMS } from "../support/stores/postgres-fixture.ts";
import { createLibraryRunner, inspectInLongRun, SQL_SUITE_OPTIONS } from "../support/stores/sql-conformance.ts";
import { withPostgres } from "../support/stores/sql-fixture.ts";
import { findPostgresViolations } from "../support/stores/sql-inspector.ts";

type CreateClient = (url: string) => Promise<PostgresClient>;

/** postgres.test.ts shows pg with the suite of the client: here, the calls of its other form are enough. */
const CLIENTS: readonly (readonly [name: string, topics: "all" | "driver", createClient: CreateClient])[] = [
  ["postgres.js", "all", async (url) => postgresJs(url, { max: 4, onnotice: () => undefined })],
  [
    "a Client of pg",
    "driver",
    async (url) => {
      const client = new Client(url);
      await client.connect();
      return client;
    },
  ],
];

withPostgres((server) => {
  let admin: Pool;

  beforeAll(async () => {
    admin = await connectAdmin(server().url);
    await admin.query(postgresMigration());
  });

  afterAll(() => admin.end());

  for (const [name, topics, createClient] of CLIENTS) {
    testDriver(createLibraryRunner(topics), `PostgreSQL by ${name}`, {
      ...SQL_SUITE_OPTIONS,
      open: async () => {
        await admin.query(LOSE_CLAIMS);
        return {
          driver: () => postgres(() => createClient(server().url), { silenceWarnings: ["durability", "push"] }),
          ...inspectInLongRun(() => findPostgresViolations(async (text) => (await admin.query(text)).rows)),
        };
      },
    });
  }
});
