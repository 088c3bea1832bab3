import { Pool } from "pg";
import { afterAll, beforeAll } from "vitest";
import { postgresAdvisory } from "../../src/drivers/sql/postgres/driver.ts";
import { registerAdvisoryConformance } from "../support/stores/advisory-conformance.ts";
import { findAdvisoryViolations, readAdvisoryLocks } from "../support/stores/postgres-advisory.ts";
import { connectAdmin } from "../support/stores/postgres-fixture.ts";
import { withPostgres } from "../support/stores/sql-fixture.ts";

withPostgres((server) => {
  let admin: Pool;

  beforeAll(async () => {
    admin = await connectAdmin(server().url);
  });

  afterAll(() => admin.end());

  const locks = () => readAdvisoryLocks(async (text) => (await admin.query(text)).rows);

  registerAdvisoryConformance("PostgreSQL's advisory locks by pg", {
    permits: "shared",
    driver: (options) => postgresAdvisory(() => new Pool({ connectionString: server().url }), options),
    inspect: async () => findAdvisoryViolations(await locks()),
    countLocks: async () => (await locks()).length,
  });
});
