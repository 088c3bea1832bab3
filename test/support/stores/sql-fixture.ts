/** A database server for the tests of one file. */

import { afterAll, beforeAll, test } from "vitest";
import type { ShiftedClock } from "../shifted-clock.ts";
import { createShiftedClock, shiftedClockUnavailableReason } from "../shifted-clock.ts";
import { mariaDbUnavailableReason, startMariaDb } from "./mariadb.ts";
import { postgresUnavailableReason, startPostgres } from "./postgres.ts";
import type { DatabaseServer, ServerOptions } from "./sql-database.ts";

/** Long enough to install it. */
const START_MS = 180_000;

/** By the stepped clock a write to the disk lasts for hours, at which InnoDB ends the server ("Long wait for double-write buffer flush"). */
const SETTINGS_FOR_CLOCK_STEPS = {
  "innodb-doublewrite": "OFF",
  "innodb-fatal-semaphore-wait-threshold": "4294967295",
};

type Register = (server: () => DatabaseServer) => void;
type RegisterWithClock = (server: () => DatabaseServer, clock: () => ShiftedClock) => void;
type Start = (options: ServerOptions) => Promise<DatabaseServer>;

/** Registers tests that have a PostgreSQL for themselves. Without one they are skipped, or fail where CI is true. */
export function withPostgres(register: Register, options: ServerOptions = {}): void {
  registerWithServer(postgresUnavailableReason(), () => startPostgres(options), register);
}

/** The same with a MariaDB. */
export function withMariaDb(register: Register, options: ServerOptions = {}): void {
  registerWithServer(mariaDbUnavailableReason(), () => startMariaDb(options), register);
}

/** The same with a PostgreSQL whose clock the tests move. */
export function withPostgresClock(register: RegisterWithClock, options: ServerOptions = {}): void {
  registerWithClock(postgresUnavailableReason(), startPostgres, register, options);
}

/** The same with a MariaDB whose clock the tests move. */
export function withMariaDbClock(register: RegisterWithClock, options: ServerOptions = {}): void {
  const settings = { ...SETTINGS_FOR_CLOCK_STEPS, ...options.settings };
  registerWithClock(mariaDbUnavailableReason(), startMariaDb, register, { ...options, settings });
}

function registerWithClock(
  reason: string | null,
  start: Start,
  register: RegisterWithClock,
  options: ServerOptions,
): void {
  let clock: ShiftedClock | undefined;
  const startWithClock = (): Promise<DatabaseServer> => {
    clock = createShiftedClock();
    return start({ ...options, environment: { ...options.environment, ...clock.environment } });
  };
  // hooks of this kind run last to first, so this one runs when the server has ended
  afterAll(() => clock?.dispose());
  registerWithServer(reason ?? shiftedClockUnavailableReason(), startWithClock, (server) => {
    register(server, () => clock as ShiftedClock);
  });
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
