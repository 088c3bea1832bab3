/** Drivers over the tables of one database on a real MariaDB, with their pools. */

import type { PoolOptions } from "mysql2";
import { createPool } from "mysql2";
import type { MysqlOptions } from "../../../src/drivers/sql/mysql/driver.ts";
import { mysql } from "../../../src/drivers/sql/mysql/driver.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { NO_EVENTS } from "../driver-events.ts";
import { withHeldTokens } from "../held-tokens.ts";
import { queryMariaDb } from "./mariadb.ts";
import type { TestDatabase } from "./sql-database.ts";
import { findMySqlViolations } from "./sql-inspector.ts";

export type Pool = ReturnType<typeof createPool>;

/** Options of a fixture's driver. */
export interface FixtureOptions {
  readonly driver?: MysqlOptions;
  readonly pool?: PoolOptions;
  /** Statements that each new connection of the pool runs first: the settings of its session. */
  readonly session?: readonly string[];
}

export interface MysqlFixture {
  readonly database: TestDatabase;
  /** A pool that the fixture closes. */
  pool(options?: Pick<FixtureOptions, "pool" | "session">): Pool;
  /** A driver that is not open. */
  driver(options?: FixtureOptions): Driver;
  open(options?: FixtureOptions): Promise<Driver>;
  /** What is wrong with the tables. */
  violations(expectEmpty?: boolean): Promise<readonly string[]>;
  /** A counter of the server, "Questions". */
  status(name: string): Promise<number>;
  close(): Promise<void>;
}

export function createMysqlFixture(database: TestDatabase): MysqlFixture {
  const [drivers, pools]: [Driver[], Pool[]] = [[], []];
  const pool: MysqlFixture["pool"] = ({ pool: options = {}, session = [] } = {}) => {
    const created = createPool({ uri: database.url, connectionLimit: 4, ...options });
    created.on("connection", (connection) => {
      for (const text of session) connection.query(text);
    });
    pools.push(created);
    return created;
  };
  const driver: MysqlFixture["driver"] = (options = {}) => {
    const created = mysql(pool(options), { silenceWarnings: ["durability"], ...options.driver });
    drivers.push(created);
    return created;
  };
  return {
    database,
    pool,
    driver,
    async open(options) {
      const opened = withHeldTokens(driver(options), options?.driver?.clock);
      await opened.open(NO_EVENTS);
      return opened;
    },
    violations: (expectEmpty = false) => findMySqlViolations((text) => database.query(text), { expectEmpty }),
    async status(name) {
      const rows = await database.query("show global status where variable_name = ?", [name]);
      return Number(rows[0]?.Value);
    },
    async close() {
      for (const one of drivers) await one.close();
      for (const one of pools) await new Promise<void>((resolve) => one.end(() => resolve()));
    },
  };
}

/** Keeps the bucket of a key locked, as a session does that was suspended in a transaction. */
export async function lockBucket(pool: Pool, bucket: number): Promise<{ end(): Promise<void> }> {
  const connection = await pool.promise().getConnection();
  await connection.query("begin");
  await connection.query("select * from holdfast_4_buckets where bucket = ? for update", [bucket]);
  return {
    async end() {
      await connection.query("rollback");
      connection.release();
    },
  };
}

/** Removes all claims and tombstones. */
export async function emptyTables({ query }: TestDatabase): Promise<void> {
  for (const table of ["claims", "tombstones"]) await query(`delete from holdfast_4_${table}`);
  await query("update holdfast_4_buckets set form = 'table', used = null where form <> 'free'");
}

/** The connections that run a statement, by the ids that KILL takes. */
export async function listCalls({ url }: TestDatabase): Promise<readonly number[]> {
  const rows = await queryMariaDb(
    url,
    "select id from information_schema.processlist where db = database() and command = 'Query' and id <> connection_id()",
  );
  return rows.map(({ id }) => Number(id));
}

/** Ends the grace period of guardDataLoss that begins with the first use of tables. */
export async function markLongInUse(database: TestDatabase): Promise<void> {
  await database.query("call holdfast_4_check_data_loss(1000)");
  await database.query("update holdfast_4_identity set grace_begins = 0, grace_ends = 0");
}
