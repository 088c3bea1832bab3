/** The suite's first topics, and pauses, with guardDataLoss, on tables that have been in use for long. */

import { createPool } from "mysql2";
import type { TestAPI } from "vitest";
import { describe, test } from "vitest";
import { DRIVER_TOPICS, defineTests } from "../../src/conformance/topics.ts";
import { mysql } from "../../src/drivers/sql/mysql/driver.ts";
import type { Driver } from "../../src/spi/driver.ts";
import { NO_EVENTS } from "../support/driver-events.ts";
import { leakCheckedTest } from "../support/leak-checked-test.ts";
import { emptyTables, markLongInUse } from "../support/stores/mysql-fixture.ts";
import { REDIS_SUITE_OPTIONS } from "../support/stores/redis-conformance.ts";
import type { TestDatabase } from "../support/stores/sql-database.ts";
import { withMariaDb } from "../support/stores/sql-fixture.ts";
import { findMySqlViolations } from "../support/stores/sql-inspector.ts";

const GUARDED_TOPICS = ["lifecycle", "contention"];

withMariaDb((server) => {
  let database: Promise<TestDatabase> | undefined;

  const guardedDriver = ({ url }: TestDatabase): Driver =>
    mysql(() => createPool({ uri: url, connectionLimit: 4 }), {
      silenceWarnings: ["durability", "guardDataLoss"],
      guardDataLoss: { maxTtlMs: 86_400_000 },
    });
  const createTables = async (): Promise<TestDatabase> => {
    const created = await server().freshDatabase();
    const driver = guardedDriver(created);
    await driver.open(NO_EVENTS);
    await driver.close();
    return created;
  };
  const openStore = async (isPaused: boolean) => {
    database ??= createTables();
    const store = await database;
    await emptyTables(store);
    await markLongInUse(store);
    // the same as the first use
    if (isPaused) await store.query("update holdfast_4_identity set created = '', sequence = 0");
    return {
      driver: () => guardedDriver(store),
      inspect: () => findMySqlViolations((text) => store.query(text), { isPaused }),
    };
  };

  defineTests(
    { describe, test: leakCheckedTest(test as TestAPI) },
    "MariaDB with guardDataLoss",
    DRIVER_TOPICS.filter(([title]) => GUARDED_TOPICS.includes(title)),
    {
      ...REDIS_SUITE_OPTIONS,
      traits: { manyKeys: false, recall: "recheck" },
      timeScale: 1,
      skip: [{ test: "the longest lease is kept", reason: "a guarded store grants none longer than a grace period" }],
      open: () => openStore(false),
      openPaused: () => openStore(true),
    },
  );
});
