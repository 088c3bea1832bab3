/** The suite on handles of the other libraries for SQLite. sqlite.test.ts shows it by the library that a path loads. */

import { chmodSync } from "node:fs";
import type { SqliteLike } from "../../src/drivers/sql/sqlite/driver.ts";
import { sqlite } from "../../src/drivers/sql/sqlite/driver.ts";
import { testDriver } from "../client/suite.ts";
import { createLibraryRunner, inspectInLongRun, SQL_SUITE_OPTIONS } from "../support/stores/sql-conformance.ts";
import { SqliteInspector, useSqliteFiles } from "../support/stores/sqlite.ts";
import { listOtherLibraries } from "../support/stores/sqlite-libraries.ts";

const newFile = useSqliteFiles();

for (const { name, open } of listOtherLibraries()) {
  testDriver(createLibraryRunner(), `SQLite by a handle of ${name}`, {
    ...SQL_SUITE_OPTIONS,
    open: async () => {
      const path = newFile();
      const handles: SqliteLike[] = [];
      const inspector = new SqliteInspector(path);
      return {
        driver: () => {
          const handle = open(path);
          handles.push(handle);
          handle.exec("pragma journal_mode = wal");
          chmodSync(path, 0o600);
          return sqlite(handle);
        },
        ...inspectInLongRun(() => inspector.findViolations()),
        close: async () => {
          for (const handle of handles) handle.close();
          inspector.close();
        },
      };
    },
  });
}
