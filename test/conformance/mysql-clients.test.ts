/** The suite on MariaDB by the other clients: pools and single connections. mysql.test.ts shows it by a pool of mysql2. */

import mariadb from "mariadb";
import mysql2 from "mysql2/promise";
import type { MysqlClient } from "../../src/drivers/sql/mysql/driver.ts";
import { mysql } from "../../src/drivers/sql/mysql/driver.ts";
import { testDriver } from "../client/suite.ts";
import { emptyTables } from "../support/stores/mysql-fixture.ts";
import { createLibraryRunner, inspectInLongRun, SQL_SUITE_OPTIONS } from "../support/stores/sql-conformance.ts";
import type { TestDatabase } from "../support/stores/sql-database.ts";
import { withMariaDb } from "../support/stores/sql-fixture.ts";
import { findMySqlViolations } from "../support/stores/sql-inspector.ts";

type CreateClient = (url: string) => MysqlClient | Promise<MysqlClient>;

const isLongRun = process.env.HOLDFAST_LONG === "1";

/** mysql2/promise is mysql2 below, which mysql.test.ts shows with the suite of the client: here, its calls are enough. */
const CLIENTS: readonly (readonly [name: string, topics: "all" | "driver", createClient: CreateClient])[] = [
  ["a connection of mysql2/promise", "driver", (url) => mysql2.createConnection(url)],
  ["a pool of mariadb", "all", (url) => mariadb.createPool(`${toMariadb(url)}?connectionLimit=4&minimumIdle=0`)],
];

/** The other form of each library. */
const LONG_RUN_CLIENTS: typeof CLIENTS = [
  ["a pool of mysql2/promise", "all", (url) => mysql2.createPool({ uri: url, connectionLimit: 4 })],
  ["a connection of mariadb", "all", (url) => mariadb.createConnection(toMariadb(url))],
];

const toMariadb = (url: string): string => url.replace("mysql:", "mariadb:");

withMariaDb((server) => {
  let database: Promise<TestDatabase> | undefined;
  let hasTables = false;
  for (const [name, topics, createClient] of [...CLIENTS, ...(isLongRun ? LONG_RUN_CLIENTS : [])]) {
    testDriver(createLibraryRunner(topics), `MariaDB by ${name}`, {
      ...SQL_SUITE_OPTIONS,
      open: async () => {
        database ??= server().freshDatabase();
        const store = await database;
        const { url, query } = store;
        if (hasTables) await emptyTables(store);
        hasTables = true;
        return {
          driver: () => mysql(() => createClient(url), { silenceWarnings: ["durability"] }),
          ...inspectInLongRun(() => findMySqlViolations(query)),
        };
      },
    });
  }
});
