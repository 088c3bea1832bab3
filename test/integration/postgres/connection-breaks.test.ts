/** PostgreSQL loses a lock while its client is cut off (test/support/stores/connection-breaks.ts). */

import { Client, Pool } from "pg";
import postgresJs from "postgres";
import { createSqlDriver } from "../../../src/drivers/sql/driver.ts";
import { createPostgresDialect } from "../../../src/drivers/sql/postgres/dialect.ts";
import type { PostgresOptions } from "../../../src/drivers/sql/postgres/driver.ts";
import { postgres } from "../../../src/drivers/sql/postgres/driver.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import type { BreakableStore, BreakTestOptions } from "../../support/stores/connection-breaks.ts";
import { testConnectionBreaks } from "../../support/stores/connection-breaks.ts";
import { createPostgresFixture, LOSE_CLAIMS } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";
import { openPostgresJsUrl } from "../../support/stores/url-clients.ts";

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
  const connectClient = async (url: string): Promise<Client> => {
    const client = new Client(url);
    await client.connect();
    return client;
  };
  /** As for a url where postgres.js is the only library. */
  const ofPostgresJsUrl = (url: string) => {
    return createSqlDriver(
      createPostgresDialect(async () => openPostgresJsUrl(url), true, SETTINGS),
      SETTINGS,
    );
  };

  const libraries: Readonly<
    Record<string, readonly [createDriver: Parameters<typeof open>[0], options?: BreakTestOptions]>
  > = {
    pg: [(url) => postgres(() => new Pool({ connectionString: url, max: 4 }), SETTINGS)],
    "pg, which listens": [
      (url) => postgres(() => new Pool({ connectionString: url, max: 4 }), { ...SETTINGS, recall: true }),
    ],
    "a Client of pg": [
      (url) => postgres(() => connectClient(url), { silenceWarnings: ["durability", "push"] }),
      { reconnects: false },
    ],
    // the query for types ends the process if the connection breaks then
    "postgres.js": [
      (url) => postgres(() => postgresJs(url, { max: 4, fetch_types: false, backoff: () => 0.1 }), SETTINGS),
    ],
    "a url with postgres.js": [ofPostgresJsUrl],
  };
  for (const [name, [createDriver, options]] of Object.entries(libraries)) {
    testConnectionBreaks(`PostgreSQL by ${name}`, () => open(createDriver), { ownStore: true, ...options });
  }
});
