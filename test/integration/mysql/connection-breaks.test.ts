/** MariaDB loses a lock while its client is cut off (test/support/stores/connection-breaks.ts). */

import mariadb from "mariadb";
import mysql2 from "mysql2/promise";
import { createSqlDriver } from "../../../src/drivers/sql/driver.ts";
import { createMysqlDialect } from "../../../src/drivers/sql/mysql/dialect.ts";
import type { MysqlClient, MysqlOptions } from "../../../src/drivers/sql/mysql/driver.ts";
import { mysql } from "../../../src/drivers/sql/mysql/driver.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import type { BreakableStore, BreakTestOptions } from "../../support/stores/connection-breaks.ts";
import { testConnectionBreaks } from "../../support/stores/connection-breaks.ts";
import { createMysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";
import { openMariadbUrl } from "../../support/stores/url-clients.ts";

type CreateDriver = (url: string) => Driver;

const SETTINGS: MysqlOptions = { silenceWarnings: ["durability"] };

/** Of a function that creates the client. */
const of =
  (connect: (url: string) => MysqlClient | Promise<MysqlClient>): CreateDriver =>
  (url) =>
    mysql(() => connect(url), SETTINGS);

const toMariadb = (url: string): string => url.replace("mysql://", "mariadb://");

const LIBRARIES: Readonly<Record<string, readonly [createDriver: CreateDriver, options?: BreakTestOptions]>> = {
  mysql2: [of((uri) => mysql2.createPool({ uri, connectionLimit: 4 }))],
  "a connection of mysql2": [of((url) => mysql2.createConnection(url)), { reconnects: false }],
  mariadb: [of((url) => mariadb.createPool(toMariadb(url)))],
  "a connection of mariadb": [of((url) => mariadb.createConnection(toMariadb(url))), { reconnects: false }],
  /** As for a url where mariadb is the only library. */
  "a url, by mariadb": [
    (url) =>
      createSqlDriver(
        createMysqlDialect(async () => openMariadbUrl(url), true, SETTINGS),
        SETTINGS,
      ),
  ],
};

withMariaDb((server) => {
  for (const [library, [createDriver, options]] of Object.entries(LIBRARIES)) {
    const open = async (): Promise<BreakableStore> => {
      const fixture = createMysqlFixture(await server().freshDatabase());
      const { query, url } = fixture.database;
      const proxy = await tcpProxy({ host: "127.0.0.1", port: server().port });
      const { port } = proxy.address as { readonly port: number };
      return {
        driverBehindProxies: () => createDriver(url.replace(`:${server().port}/`, `:${port}/`)),
        directDriver: () => fixture.driver(),
        proxies: [proxy],
        async loseClaims() {
          for (const table of ["claims", "tombstones"]) await query(`delete from holdfast_4_${table}`);
          await query("update holdfast_4_buckets set form = 'table', used = null");
        },
        async close() {
          await fixture.close();
          await proxy.close();
        },
      };
    };
    testConnectionBreaks(`MariaDB by ${library}`, open, { ownStore: true, ...options });
  }
});
