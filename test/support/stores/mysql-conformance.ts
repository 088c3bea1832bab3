/** What every way to reach a MariaDB is held to. */

import type { TestAPI } from "vitest";
import { describe, test } from "vitest";
import type { Driver } from "../../../src/spi/driver.ts";
import { testDriver } from "../../client/suite.ts";
import { leakCheckedTest } from "../leak-checked-test.ts";
import { emptyTables } from "./mysql-fixture.ts";
import { REDIS_SUITE_OPTIONS } from "./redis-conformance.ts";
import type { TestDatabase } from "./sql-database.ts";
import { withMariaDb } from "./sql-fixture.ts";
import { findMySqlViolations } from "./sql-inspector.ts";

const isLongRun = process.env.HOLDFAST_LONG === "1";

/** The conformance suite on a real server. Each test finds the tables empty: to create them anew would take most of the time. */
export function registerMysqlConformance(name: string, driver: (database: TestDatabase) => Driver): void {
  withMariaDb((server) => {
    let database: Promise<TestDatabase> | undefined;
    let hasTables = false;
    testDriver({ describe, test: leakCheckedTest(test as TestAPI) }, name, {
      ...REDIS_SUITE_OPTIONS,
      traits: { manyKeys: false, recall: "recheck" },
      keys: isLongRun ? 100_000 : 300,
      open: async () => {
        database ??= server().freshDatabase();
        const store = await database;
        if (hasTables) await emptyTables(store);
        hasTables = true;
        return {
          driver: () => driver(store),
          inspect: () => findMySqlViolations((text) => store.query(text)),
        };
      },
    });
  });
}
