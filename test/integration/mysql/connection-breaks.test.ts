/** MariaDB loses a lock while its client is cut off (test/support/stores/connection-breaks.ts). */

import { createPool as createMariadbPool } from "mariadb";
import { createPool } from "mysql2";
import type { MysqlClient } from "../../../src/drivers/sql/mysql/driver.ts";
import { mysql } from "../../../src/drivers/sql/mysql/driver.ts";
import type { BreakableStore } from "../../support/stores/connection-breaks.ts";
import { testConnectionBreaks } from "../../support/stores/connection-breaks.ts";
import { createMysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";
import { tcpProxy } from "../../support/tcp-proxy.ts";

const createPools: Readonly<Record<string, (url: string) => MysqlClient>> = {
  mysql2: (uri) => createPool({ uri, connectionLimit: 4 }),
  mariadb: (url) => createMariadbPool(url.replace("mysql://", "mariadb://")),
};

withMariaDb((server) => {
  for (const [library, connect] of Object.entries(createPools)) {
    testConnectionBreaks(`MariaDB by ${library}`, async (): Promise<BreakableStore> => {
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
          for (const table of ["claims", "tombstones"]) await query(`delete from holdfast_2_${table}`);
          await query("update holdfast_2_buckets set mode = 2");
        },
        async close() {
          await fixture.close();
          await proxy.close();
        },
      };
    });
  }
});
