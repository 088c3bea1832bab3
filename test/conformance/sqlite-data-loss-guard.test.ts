/** The suite's first topics, and pauses, with guardDataLoss, on files that have been in use for long. */

import type { TestAPI } from "vitest";
import { describe, test } from "vitest";
import { DRIVER_TOPICS, defineTests } from "../../src/conformance/topics.ts";
import { sqlite } from "../../src/drivers/sql/sqlite/driver.ts";
import type { Driver } from "../../src/spi/driver.ts";
import { leakCheckedTest } from "../support/leak-checked-test.ts";
import { markLongInUse, SqliteInspector, useSqliteFiles } from "../support/stores/sqlite.ts";

const GUARDED_TOPICS = ["lifecycle", "contention"];

const newFile = useSqliteFiles();

const guardedDriver = (path: string): Driver =>
  sqlite(path, { guardDataLoss: { maxTtlMs: 86_400_000 }, silenceWarnings: ["guardDataLoss"] });

async function openStore(isPaused: boolean) {
  const path = newFile();
  // the first use looks to the driver like a loss of data
  if (!isPaused) await markLongInUse(path);
  const inspector = new SqliteInspector(path);
  return {
    driver: () => guardedDriver(path),
    inspect: () => inspector.findViolations({ isPaused }),
    close: async () => inspector.close(),
  };
}

defineTests(
  { describe, test: leakCheckedTest(test as TestAPI) },
  "SQLite with guardDataLoss",
  DRIVER_TOPICS.filter(([title]) => GUARDED_TOPICS.includes(title)),
  {
    verbs: ["detach", "revoke"],
    traits: { manyKeys: false, recall: "recheck" },
    timeScale: 0.5,
    keys: 1_000,
    random: { seeds: 1 },
    skip: [{ test: "the longest lease is kept", reason: "a guarded store grants none longer than a grace period" }],
    open: () => openStore(false),
    openPaused: () => openStore(true),
  },
);
