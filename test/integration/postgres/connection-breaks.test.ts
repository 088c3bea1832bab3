/** PostgreSQL loses a lock while its client is cut off (test/support/stores/connection-breaks.ts). */

import { Pool } from "pg";
import postgresJs from "postgres";
import type { PostgresOptions } from "../../../src/drivers/sql/postgres/driver.ts";
import { postgres } from "../../../src/drivers/sql/postgres/driver.ts";
import type { BreakableStore } from "../../support/stores/connection-breaks.ts";
import { testConnectionBreaks } from "../../support/stores/connection-breaks.ts";
import { createPostgresFixture, LOSE_CLAIMS } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";
import { tcpProxy } from "../../support/tcp-proxy.ts";

const SETTINGS: PostgresOptions = { silenceWarnings: ["durability"] };

withPostgres((server) => {
  const open = async (createDriver: (url: string) => ReturnType<typeof postgres>): Promise<BreakableStore> => {
    const fixture = await createPostgresFixture(server());
    const proxy = await tcpProxy({ host: "127.0.0.1", port: server().port });
    const { port } = proxy.address as { readonly port: number };
    return {
      driverBehindProxies: () => createDriver(fixture.database.url.replace(`:${server().port}/`, `:${port}/`)),
      directDriver: () => fixture.driver(),
      proxies: [proxy],
      loseClaims: () => fixture.database.query(LOSE_CLAIMS),
      async close() {
        await fixture.close();
        await proxy.close();
      },
    };
  };
  testConnectionBreaks("PostgreSQL by pg", () =>
    open((url) => postgres(() => new Pool({ connectionString: url, max: 4 }), SETTINGS)),
  );
  testConnectionBreaks("PostgreSQL by pg, which listens", () =>
    open((url) => postgres(() => new Pool({ connectionString: url, max: 4 }), { ...SETTINGS, recall: true })),
  );
  testConnectionBreaks("PostgreSQL by postgres.js", () =>
    open((url) => postgres(() => postgresJs(url, { max: 4 }), { ...SETTINGS, recall: true })),
  );
});
