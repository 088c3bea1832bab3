import { Pool } from "pg";
import type { TestAPI } from "vitest";
import { describe, test } from "vitest";
import { postgres } from "../../src/drivers/sql/postgres/driver.ts";
import { testDriver } from "../client/suite.ts";
import { leakCheckedTest } from "../support/leak-checked-test.ts";
import { REDIS_SUITE_OPTIONS } from "../support/stores/redis-conformance.ts";
import { withPostgres } from "../support/stores/sql-fixture.ts";

withPostgres((server) => {
  let count = 0;
  testDriver({ describe, test: leakCheckedTest(test as TestAPI) }, "PostgreSQL by pg", {
    ...REDIS_SUITE_OPTIONS,
    keys: 500,
    open: async () => {
      const schema = `test ${++count}`;
      return { driver: () => postgres(() => new Pool({ connectionString: server().url, max: 4 }), { schema, silenceWarnings: ["durability"] }) };
    },
  });
});
