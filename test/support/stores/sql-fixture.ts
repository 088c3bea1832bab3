/** A database server for the tests of one file. */

import { afterAll, beforeAll, test } from "vitest";
import { mariaDbUnavailableReason, startMariaDb } from "./mariadb.ts";
import { postgresUnavailableReason, startPostgres } from "./postgres.ts";
import type { DatabaseServer, ServerOptions } from "./sql-database.ts";

/** Long enough to install it. */
const START_MS = 180_000;

type Register = (server: () => DatabaseServer) => void;

/** Registers tests that have a PostgreSQL for themselves. Without one they are skipped, or fail where CI is true. */
export function withPostgres(register: Register, options: ServerOptions = {}): void {
  registerWithServer(postgresUnavailableReason(), () => startPostgres(options), register);
}

/** The same with a MariaDB. */
export function withMariaDb(register: Register, options: ServerOptions = {}): void {
  registerWithServer(mariaDbUnavailableReason(), () => startMariaDb(options), register);
}

function registerWithServer(reason: string | null, start: () => Promise<DatabaseServer>, register: Register): void {
  if (reason !== null) {
    test.skipIf(process.env.CI !== "true")(reason, () => {
      throw new Error(reason);
    });
    return;
  }
  let server: DatabaseServer | undefined;
  beforeAll(async () => {
    server = await start();
  }, START_MS);
  afterAll(async () => {
    await server?.dispose();
  });
  register(() => server as DatabaseServer);
}
