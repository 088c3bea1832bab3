import { Pool } from "pg";
import { afterAll, beforeAll } from "vitest";
import { postgresAdvisory } from "../../src/drivers/sql/postgres/driver.ts";
import { registerAdvisoryConformance } from "../support/stores/advisory-conformance.ts";
import { findAdvisoryViolations, readAdvisoryLocks } from "../support/stores/postgres-advisory.ts";
import { withPostgres } from "../support/stores/sql-fixture.ts";

withPostgres((server) => {
  /** The suite may inspect several times at once: a pool sends one statement after another. */
  let admin: Pool;

  beforeAll(() => {
    admin = new Pool({ connectionString: server().url, max: 1 });
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
