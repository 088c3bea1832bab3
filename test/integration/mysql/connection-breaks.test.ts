/** MariaDB loses a lock while its client is cut off (test/support/stores/connection-breaks.ts). */

import mariadb from "mariadb";
import mysql2 from "mysql2/promise";
import type { MysqlClient } from "../../../src/drivers/sql/mysql/driver.ts";
import { mysql } from "../../../src/drivers/sql/mysql/driver.ts";
import type { BreakableStore, BreakTestOptions } from "../../support/stores/connection-breaks.ts";
import { testConnectionBreaks } from "../../support/stores/connection-breaks.ts";
import { createMysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";
import { tcpProxy } from "../../support/tcp-proxy.ts";

type Connect = (url: string) => MysqlClient | Promise<MysqlClient>;

const toMariadb = (url: string): string => url.replace("mysql://", "mariadb://");

const LIBRARIES: Readonly<Record<string, readonly [connect: Connect, options?: BreakTestOptions]>> = {
  mysql2: [(uri) => mysql2.createPool({ uri, connectionLimit: 4 })],
  "a connection of mysql2": [(url) => mysql2.createConnection(url), { reconnects: false }],
  mariadb: [(url) => mariadb.createPool(toMariadb(url))],
  "a connection of mariadb": [(url) => mariadb.createConnection(toMariadb(url)), { reconnects: false }],
};

withMariaDb((server) => {
  for (const [library, [connect, options]] of Object.entries(LIBRARIES)) {
    const open = async (): Promise<BreakableStore> => {
      const fixture = createMysqlFixture(await server().freshDatabase());
      const { query, url } = fixture.database;
      const proxy = await tcpProxy({ host: "127.0.0.1", port: server().port });
      const { port } = proxy.address as { readonly port: number };
      return {
        driverBehindProxies: () =>
          mysql(() => connect(url.replace(`:${server().port}/`, `:${port}/`)), { silenceWarnings: ["durability"] }),
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
