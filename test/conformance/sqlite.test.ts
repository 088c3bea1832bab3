/** The suite on files of SQLite by libsql, the library of the tests on every supported Node. */

import type { TestAPI } from "vitest";
import { describe, test } from "vitest";
import { sqlite } from "../../src/drivers/sql/sqlite/driver.ts";
import { testDriver } from "../client/suite.ts";
import { leakCheckedTest } from "../support/leak-checked-test.ts";
import { SqliteInspector, useSqliteFiles } from "../support/stores/sqlite.ts";

const isLongRun = process.env.HOLDFAST_LONG === "1";
const newFile = useSqliteFiles();

testDriver({ describe, test: leakCheckedTest(test as TestAPI) }, "SQLite by libsql", {
  verbs: ["detach", "revoke"],
  traits: { manyKeys: false, recall: "recheck" },
  timeScale: 0.5,
  keys: isLongRun ? 100_000 : 1_000,
  random: isLongRun ? { seeds: 200, steps: 200 } : { seeds: 3 },
  open: async () => {
    const path = newFile();
    const inspector = new SqliteInspector(path);
    return {
      driver: () => sqlite(path),
      inspect: () => inspector.findViolations(),
      close: async () => inspector.close(),
    };
  },
});
