/** The clients of urls by the libraries that are used only if the preferred ones (pg, mysql2) are not installed. */

import mariadb from "mariadb";
import postgres from "postgres";
import type { LoadOptions } from "../../../src/drivers/sql/clients/load.ts";
import { openMariadb, openPostgresJs } from "../../../src/drivers/sql/clients/load.ts";
import type { SqlClient } from "../../../src/drivers/sql/clients/types.ts";

const OPTIONS: LoadOptions = { connectTimeoutMs: 5_000 };

export function openPostgresJsUrl(url: string, options: LoadOptions = OPTIONS): SqlClient {
  // the types of the library are stricter than what it accepts
  return openPostgresJs(postgres as unknown as Parameters<typeof openPostgresJs>[0], url, options);
}

export function openMariadbUrl(url: string, options: LoadOptions = OPTIONS): SqlClient {
  // its types lack members of its connections
  return openMariadb(mariadb as unknown as Parameters<typeof openMariadb>[0], url, options);
}
