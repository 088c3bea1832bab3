/** Creates a client for a url with a library that is installed. Nothing is loaded unless a url needs it. */

// under another name: the banner of many bundles declares "createRequire"
import { createRequire as requireFrom } from "node:module";
import { FatalDriverError } from "../../../errors.ts";
import type { MariadbConnectionLike, MariadbPoolLike } from "./mariadb.ts";
import { adaptMariadbPool } from "./mariadb.ts";
import type { Mysql2ConnectionLike, Mysql2PoolLike } from "./mysql2.ts";
import { adaptMysql2Pool } from "./mysql2.ts";
import type { PgPoolLike } from "./pg.ts";
import { adaptPgPool } from "./pg.ts";
import type { PostgresJsLike } from "./postgres-js.ts";
import { createPostgresJsPool } from "./postgres-js.ts";
import type { SqliteLike } from "./sqlite.ts";
import { adaptSqlite, BETTER_SQLITE3, BUN_SQLITE, LIBSQL, NODE_SQLITE } from "./sqlite.ts";
import type { SqlClient, SqliteDatabase } from "./types.ts";
import {
  parseMysqlUrl,
  parsePostgresUrl,
  takePostgresTls,
  toMysql2Tls,
  toPgSettings,
  toPostgresJsSettings,
} from "./url.ts";

/** Settings of a client that the driver creates. */
export interface LoadOptions {
  /** How long a connection attempt may take, in milliseconds. */
  readonly connectTimeoutMs: number;
}

/** Not a literal in import(): bundlers for Node would not find it. */
const BUN_MODULE: string = "bun:sqlite";
/** The most connections of a pool that the driver creates: waiting and held claims need none. */
const MAX_CONNECTIONS = 4;
/** Milliseconds until an idle connection is closed: longer than the interval between renewals. */
const IDLE_TIMEOUT_MS = 60_000;
/** The name of the connections in the lists of the server, unless the url has another. */
const APPLICATION_NAME = "holdfast";

/**
 * A pool for a url of PostgreSQL. Connects when it is first used.
 * @param url without parameters of the driver
 * @throws TypeError if the url is invalid; its message does not contain the url
 * @throws FatalDriverError if no library is installed
 */
export async function loadPostgresClient(url: string, { connectTimeoutMs }: LoadOptions): Promise<SqlClient> {
  const endpoint = takePostgresTls(url, parsePostgresUrl(url));
  const pg = await (import("pg" as string) as Promise<PgModule>).catch(nullIfMissing("pg"));
  if (pg !== null) {
    const { Pool } = pg.default ?? pg;
    return adaptPgPool(
      new Pool({
        ...toPgSettings(endpoint),
        max: MAX_CONNECTIONS,
        connectionTimeoutMillis: connectTimeoutMs,
        idleTimeoutMillis: IDLE_TIMEOUT_MS,
        allowExitOnIdle: true,
        keepAlive: true,
        fallback_application_name: APPLICATION_NAME,
      }),
    );
  }
  const postgres = await (import("postgres" as string) as Promise<PostgresJsModule>).catch(nullIfMissing("postgres"));
  if (postgres !== null) {
    const create = postgres.default;
    const { url: plainUrl, options } = toPostgresJsSettings(endpoint);
    const settings = {
      ...options,
      connect_timeout: Math.ceil(connectTimeoutMs / 1_000),
      connection: { application_name: APPLICATION_NAME },
      onnotice: () => undefined,
    };
    return createPostgresJsPool((changes) => create(plainUrl, { ...settings, ...changes }), {
      max: MAX_CONNECTIONS,
      idle_timeout: IDLE_TIMEOUT_MS / 1_000,
    });
  }
  throw createMissingError("PostgreSQL urls", ["pg", "postgres"]);
}

/**
 * A pool for a url of MariaDB or MySQL. Connects when it is first used.
 * @param url without parameters of the driver
 * @throws TypeError if the url is invalid; its message does not contain the url
 * @throws FatalDriverError if no library is installed
 */
export async function loadMysqlClient(url: string, { connectTimeoutMs }: LoadOptions): Promise<SqlClient> {
  const endpoint = parseMysqlUrl(url);
  const { options, ssl } = endpoint;
  const settings = {
    ...options,
    connectionLimit: MAX_CONNECTIONS,
    connectTimeout: connectTimeoutMs,
    connectAttributes: { program_name: APPLICATION_NAME },
  };
  const mysql2 = await (import("mysql2" as string) as Promise<Mysql2Module>).catch(nullIfMissing("mysql2"));
  if (mysql2 !== null) {
    const { createPool } = mysql2.default ?? mysql2;
    const pool = createPool({ ...settings, ...(ssl !== undefined && { ssl: toMysql2Tls(endpoint) }) });
    // its idle connections do not keep the process alive
    pool.on("connection", ({ stream }: Mysql2ConnectionLike) => void stream.unref?.());
    return adaptMysql2Pool(pool);
  }
  const mariadb = await (import("mariadb" as string) as Promise<MariadbModule>).catch(nullIfMissing("mariadb"));
  if (mariadb !== null) {
    // without the host it would compare the certificate of a server that is named by its address with "localhost"
    const mariadbSettings = { ...settings, ...(ssl !== undefined && { ssl: { host: options.host, ...ssl } }) };
    const pool = mariadb.createPool({ ...mariadbSettings, minimumIdle: 0, idleTimeout: IDLE_TIMEOUT_MS / 1_000 });
    const { connectionLimit: _, ...connectionSettings } = mariadbSettings;
    return adaptMariadbPool(pool, () => mariadb.createConnection(connectionSettings));
  }
  throw createMissingError("MariaDB and MySQL urls", ["mysql2", "mariadb"]);
}

interface Mysql2Module {
  createPool(options: object): Mysql2PoolLike;
  /** The exports of a CommonJS module. */
  readonly default?: Mysql2Module;
}

interface MariadbModule {
  createPool(options: object): MariadbPoolLike;
  createConnection(options: object): Promise<MariadbConnectionLike>;
}

interface PostgresJsModule {
  readonly default: (urlOrOptions: string | object, options?: object) => PostgresJsLike;
}

interface PgModule {
  readonly Pool: new (options: object) => PgPoolLike;
  /** The exports of a CommonJS module. */
  readonly default?: PgModule;
}

/**
 * Opens a database file, or ":memory:", with the first library of: bun:sqlite on Bun, node:sqlite, libsql, better-sqlite3.
 * @throws FatalDriverError if none is available
 */
export async function loadSqliteDatabase(path: string): Promise<SqliteDatabase> {
  if (process.versions.bun !== undefined) {
    const { Database } = (await import(BUN_MODULE)) as BunSqliteModule;
    return adaptSqlite(new Database(path, { create: true, readwrite: true }), BUN_SQLITE);
  }
  const nodeSqlite = process.getBuiltinModule("node:sqlite" as "node:module") as unknown as
    | NodeSqliteModule
    | undefined;
  const NodeDatabase = nodeSqlite?.DatabaseSync ?? nodeSqlite?.Database;
  if (NodeDatabase !== undefined) return adaptSqlite(new NodeDatabase(path), NODE_SQLITE);
  const libsql = await (import("libsql" as string) as Promise<SqliteModule>).catch(nullIfMissing("libsql"));
  if (libsql !== null) return adaptSqlite(new libsql.default(path), LIBSQL);
  rejectCrashingLibrary();
  const betterSqlite3 = await (import("better-sqlite3" as string) as Promise<SqliteModule>).catch(
    nullIfMissing("better-sqlite3"),
  );
  if (betterSqlite3 !== null) return adaptSqlite(new betterSqlite3.default(path, { timeout: 0 }), BETTER_SQLITE3);
  throw createMissingError("sqlite urls", ["libsql", "better-sqlite3"], "Node 22.13 or newer");
}

interface BunSqliteModule {
  readonly Database: new (path: string, options: object) => SqliteLike;
}

/** Node is to rename the class. */
interface NodeSqliteModule {
  readonly DatabaseSync?: new (path: string) => SqliteLike;
  readonly Database?: new (path: string) => SqliteLike;
}

interface SqliteModule {
  readonly default: new (path: string, options?: object) => SqliteLike;
}

/** better-sqlite3 13 ends the process on Node 20 as soon as it is used, so its version is read before it is loaded. */
function rejectCrashingLibrary(): void {
  const nodeMajor = Number.parseInt(process.versions.node, 10);
  if (nodeMajor >= 22) return;
  let version: string;
  try {
    ({ version } = requireFrom(import.meta.url)("better-sqlite3/package.json") as { version: string });
  } catch {
    return; // not installed
  }
  if (Number.parseInt(version, 10) < 13) return;
  throw new FatalDriverError(
    `better-sqlite3 ${version} crashes on Node ${nodeMajor}: npm install better-sqlite3@12, or npm install libsql`,
  );
}

/**
 * Catches that a package is not installed. Written as `import("name").catch(...)`, in one expression: bundlers then accept
 * that the package is missing, as it is for users of other stores.
 */
function nullIfMissing(name: string): (error: unknown) => null {
  return (error) => {
    const { code, message } = error as NodeJS.ErrnoException;
    // MODULE_NOT_FOUND comes from a CommonJS bundle. A dependency of the package may be missing, too: that is an error
    if (!/^(?:ERR_)?MODULE_NOT_FOUND$/.test(code ?? "") || !message.includes(`'${name}'`)) throw error;
    return null;
  };
}

function createMissingError(subject: string, packages: readonly string[], alternative?: string): FatalDriverError {
  const names = packages.map((name) => JSON.stringify(name)).join(" or ");
  const which = packages.length === 1 ? "which is not installed" : "neither of which is installed";
  const other = alternative === undefined ? "" : `, or use ${alternative}`;
  return new FatalDriverError(`${subject} need the package ${names}, ${which}: npm install ${packages[0]}${other}`);
}
