/** A PostgreSQL and a MariaDB for the time of one run, as the tests of Holdfast start them. */

import { startMariaDb } from "../../test/support/stores/mariadb.ts";
import { startPostgres } from "../../test/support/stores/postgres.ts";

export interface TemporaryServers {
  readonly urls: readonly string[];
  stop(): Promise<void>;
}

export async function startServers(): Promise<TemporaryServers> {
  const servers = [await startPostgres(), await startMariaDb()];
  const databases = await Promise.all(servers.map((server) => server.freshDatabase()));
  return {
    urls: databases.map(({ url }) => url),
    async stop() {
      for (const server of servers) await server.dispose();
    },
  };
}
