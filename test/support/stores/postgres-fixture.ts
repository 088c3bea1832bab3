/** Drivers of one PostgreSQL database, for the tests of test/integration/postgres. */

import { Pool } from "pg";
import { postgres } from "../../../src/drivers/sql/postgres/driver.ts";
import type { PostgresOptions } from "../../../src/drivers/sql/postgres/options.ts";
import type { Locks, LocksOptions } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { Answer, Driver } from "../../../src/spi/driver.ts";
import { toDriverEvents } from "../driver-events.ts";
import { withHeldTokens } from "../held-tokens.ts";
import type { DatabaseServer, TestDatabase } from "./sql-database.ts";
import { findPostgresViolations } from "./sql-inspector.ts";

interface DriverSettings extends PostgresOptions {
  /** Where its pool connects to. Default: the fixture's database. */
  readonly url?: string;
  /** The size of its pool. Default: 4. */
  readonly max?: number;
}

/** An open driver, and what it has pushed. */
export interface OpenDriver {
  readonly driver: Driver;
  /** The answers pushed for each claim: undefined is a hint. */
  readonly pushes: Map<string, Answer | undefined>;
  /** How often pushes may have been lost. */
  readonly missed: () => number;
}

export interface PostgresFixture {
  readonly database: TestDatabase;
  /** What the drivers warned of. */
  readonly warnings: string[];
  /** Not opened yet. */
  driver(settings?: DriverSettings): Driver;
  open(settings?: DriverSettings): Promise<OpenDriver>;
  locks(options?: LocksOptions, settings?: DriverSettings): Locks;
  /** What is wrong with the tables. */
  inspect(): Promise<string[]>;
  /** Closes what it has opened. */
  closeDrivers(): Promise<void>;
  /** The same, and drops the database. */
  close(): Promise<void>;
}

/** The suite's own connection, open before its first test. A pool, since inspections may come at once: it sends one after another. */
export async function connectAdmin(url: string): Promise<Pool> {
  const pool = new Pool({ connectionString: url, max: 1, idleTimeoutMillis: 0 });
  await pool.query("select 1");
  return pool;
}

export async function createPostgresFixture(server: DatabaseServer): Promise<PostgresFixture> {
  const database = await server.freshDatabase();
  const warnings: string[] = [];
  const closers: (() => Promise<unknown>)[] = [];
  const fixture: PostgresFixture = {
    database,
    warnings,
    driver({ url = database.url, max = 4, ...options } = {}) {
      const makePool = () => new Pool({ connectionString: url, max });
      // the servers of tests do not sync
      const silenceWarnings = ["durability"] as const;
      return postgres(makePool, { silenceWarnings, warn: (warning) => warnings.push(warning), ...options });
    },
    async open(settings) {
      const driver = withHeldTokens(fixture.driver(settings), settings?.clock);
      const pushes: OpenDriver["pushes"] = new Map();
      let missed = 0;
      await driver.open(
        toDriverEvents((id, answer) => {
          if (id === null) missed++;
          else pushes.set(id, answer);
        }),
      );
      closers.push(() => driver.close());
      return { driver, pushes, missed: () => missed };
    },
    locks(options, settings) {
      const locks = createLocks(fixture.driver(settings), options);
      closers.push(() => locks.close());
      return locks;
    },
    inspect: () => findPostgresViolations(database.query),
    async closeDrivers() {
      for (const close of closers.splice(0)) await close();
    },
    async close() {
      await fixture.closeDrivers();
      await database.drop();
    },
  };
  return fixture;
}

/** Loses all claims, with what the rows of buckets say of them. */
export const LOSE_CLAIMS = `truncate holdfast.holdfast_1_claims, holdfast.holdfast_1_tombstones;
  update holdfast.holdfast_1_buckets set key = null, used = null where key is not null`;

/** Ends the grace period of guardDataLoss that begins with the first use of tables. */
export async function markLongInUse(query: (text: string) => Promise<unknown>): Promise<void> {
  await query("select holdfast.holdfast_1_check_data_loss(1000)");
  await query(
    "update holdfast.holdfast_1_identity set grace_begins = 0, grace_ends = 0, writer = txid_current() % 4294967296",
  );
}

/** Makes the next call begin a grace period. */
export async function forgetIdentity(query: (text: string) => Promise<unknown>): Promise<void> {
  await query("delete from holdfast.holdfast_1_identity");
}
