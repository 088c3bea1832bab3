/** The suite's first topics, and pauses, with guardDataLoss, on tables that have been in use for long. */

import { Pool } from "pg";
import type { TestAPI } from "vitest";
import { afterAll, beforeAll, describe, test } from "vitest";
import { DRIVER_TOPICS, defineTests } from "../../src/conformance/topics.ts";
import { postgres, postgresMigration } from "../../src/drivers/sql/postgres/driver.ts";
import { leakCheckedTest } from "../support/leak-checked-test.ts";
import { connectAdmin, forgetIdentity, markLongInUse } from "../support/stores/postgres-fixture.ts";
import { REDIS_SUITE_OPTIONS } from "../support/stores/redis-conformance.ts";
import { withPostgres } from "../support/stores/sql-fixture.ts";
import { findPostgresViolations } from "../support/stores/sql-inspector.ts";

const GUARDED_TOPICS = ["lifecycle", "contention"];

withPostgres((server) => {
  let admin: Pool;

  beforeAll(async () => {
    admin = await connectAdmin(server().url);
    await admin.query(postgresMigration());
  });

  afterAll(() => admin.end());

  const query = async (text: string) => (await admin.query(text)).rows;
  const openStore = async (isPaused: boolean) => {
    await admin.query("delete from holdfast.holdfast_1_claims");
    await admin.query("delete from holdfast.holdfast_1_tombstones");
    await admin.query("update holdfast.holdfast_1_buckets set key = null, used = null where key is not null");
    await (isPaused ? forgetIdentity : markLongInUse)(query);
    return {
      driver: () =>
        postgres(() => new Pool({ connectionString: server().url, max: 4 }), {
          silenceWarnings: ["durability", "guardDataLoss"],
          guardDataLoss: { maxTtlMs: 86_400_000 },
        }),
      inspect: () => findPostgresViolations(query, { isPaused }),
    };
  };

  defineTests(
    { describe, test: leakCheckedTest(test as TestAPI) },
    "PostgreSQL with guardDataLoss",
    DRIVER_TOPICS.filter(([title]) => GUARDED_TOPICS.includes(title)),
    {
      ...REDIS_SUITE_OPTIONS,
      traits: { manyKeys: false, recall: "recheck" },
      timeScale: 1,
      skip: [{ test: "the longest lease is kept", reason: "a guarded store grants none longer than a grace period" }],
      open: () => openStore(false),
      // the first use looks to the driver like a loss of data
      openPaused: () => openStore(true),
    },
  );
});
