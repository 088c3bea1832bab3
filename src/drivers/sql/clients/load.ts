/**
 * Creates a client for the url of a database server with a library that is installed. Nothing is loaded unless a url
 * needs it.
 */

import { once } from "node:events";
import { connect, Socket } from "node:net";
import { createConnectError } from "../../../net/transport.ts";
import type { MariadbConnectionLike } from "./mariadb.ts";
import { createMariadbPool } from "./mariadb.ts";
import { createMissingError, nullIfMissing } from "./missing-library.ts";
import type { Mysql2PoolLike } from "./mysql2.ts";
import { adaptMysql2Pool } from "./mysql2.ts";
import type { PgClientLike, PgPoolLike } from "./pg.ts";
import { adaptPgPool } from "./pg.ts";
import type { PostgresJsLike } from "./postgres-js.ts";
import { createPostgresJsPool } from "./postgres-js.ts";
import type { SqlClient } from "./types.ts";
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
 * @throws StoreRefusedError if no library is installed
 */
export async function loadPostgresClient(url: string, { connectTimeoutMs }: LoadOptions): Promise<SqlClient> {
  const endpoint = takePostgresTls(url, parsePostgresUrl(url));
  const pg = await importPg();
  if (pg !== null) {
    const { Client, Pool } = pg.default ?? pg;
    // the timer of the pool would keep the process alive while a connection is made, that of the client does not
    function BoundedClient(options: object): PgClientLike {
      const client = new Client({ ...options, connectionTimeoutMillis: connectTimeoutMs });
      // when the library cannot answer the server's question for a password, it leaves the connection open
      client.connection?.on("error", () => client.connection?.stream?.destroy());
      return client;
    }
    const pool = new Pool({
      ...toPgSettings(endpoint),
      Client: BoundedClient,
      stream: () => new Socket().unref(),
      max: MAX_CONNECTIONS,
      idleTimeoutMillis: IDLE_TIMEOUT_MS,
      allowExitOnIdle: true,
      keepAlive: true,
      fallback_application_name: APPLICATION_NAME,
    });
    // nor does one in use keep the process alive
    pool.on("acquire", (client) => (client as PgClientLike).unref?.());
    return adaptPgPool(pool);
  }
  const postgres = await importPostgresJs();
  if (postgres !== null) {
    const create = postgres.default;
    const { url: plainUrl, options } = toPostgresJsSettings(endpoint);
    const settings = {
      ...options,
      connection: { application_name: APPLICATION_NAME },
      onnotice: () => undefined,
      // sockets and timers of the library would keep the process alive
      socket: (target: PostgresJsTarget) => openPostgresJsSocket(target, connectTimeoutMs),
      connect_timeout: null,
      idle_timeout: null,
    };
    return createPostgresJsPool((changes) => create(plainUrl, { ...settings, ...changes }), MAX_CONNECTIONS);
  }
  throw createMissingError("PostgreSQL urls", ["pg", "postgres"]);
}

/**
 * A pool for a url of MariaDB or MySQL. Connects when it is first used.
 * @param url without parameters of the driver
 * @throws TypeError if the url is invalid; its message does not contain the url
 * @throws StoreRefusedError if no library is installed
 */
export async function loadMysqlClient(url: string, { connectTimeoutMs }: LoadOptions): Promise<SqlClient> {
  const endpoint = parseMysqlUrl(url);
  const { options, ssl } = endpoint;
  const settings = {
    ...options,
    connectionLimit: MAX_CONNECTIONS,
    connectAttributes: { program_name: APPLICATION_NAME },
  };
  const mysql2 = await importMysql2();
  if (mysql2 !== null) {
    const { createPool } = mysql2.default ?? mysql2;
    const pool = createPool({
      ...settings,
      ...(ssl !== undefined && { ssl: toMysql2Tls(endpoint) }),
      // the timer of the library would keep the process alive while a connection is made
      connectTimeout: 0,
      stream: () => connectSocket(options, connectTimeoutMs),
    });
    return adaptMysql2Pool(pool);
  }
  const mariadb = await importMariadb();
  if (mariadb !== null) {
    // without the host it would compare the certificate of a server that is named by its address with "localhost"
    const { socketPath: _, ...target } = options;
    const connectionSettings = {
      ...target,
      connectAttributes: settings.connectAttributes,
      ...(ssl !== undefined && { ssl: { host: options.host, ...ssl } }),
      // sockets and timers of the library would keep the process alive
      stream: () => connectSocket(options, connectTimeoutMs),
      connectTimeout: 0,
    };
    return createMariadbPool(() => mariadb.createConnection(connectionSettings), MAX_CONNECTIONS);
  }
  throw createMissingError("MariaDB and MySQL urls", ["mysql2", "mariadb"]);
}

/**
 * A socket that does not keep the process alive. It closes if the server is silent for `timeoutMs` before its first
 * message, or after it.
 */
function connectSocket(
  { host, port, socketPath }: { readonly host: string; readonly port: number; readonly socketPath?: string },
  timeoutMs: number,
): Socket {
  const socket = connect(
    socketPath === undefined ? { host, port, noDelay: true, keepAlive: true } : { path: socketPath },
  );
  let greetingLength = 0;
  socket.once("data", () => {
    greetingLength = socket.bytesRead;
  });
  socket.setTimeout(timeoutMs).on("timeout", () => {
    // a login that is not answered would keep its place in the pool
    if (socket.bytesRead > greetingLength) socket.setTimeout(0);
    else socket.destroy(createConnectError("ETIMEDOUT", `no answer within ${timeoutMs} ms`));
  });
  return socket.unref();
}

/** Where a connection of postgres.js shall lead to: all hosts of its url. */
interface PostgresJsTarget {
  readonly host: readonly [string, ...string[]];
  readonly port: readonly [number, ...number[]];
  readonly path?: string | false;
}

async function openPostgresJsSocket({ host, port, path }: PostgresJsTarget, timeoutMs: number): Promise<Socket> {
  const target = { host: host[0], port: port[0] };
  const socket = connectSocket(path ? { ...target, socketPath: path } : target, timeoutMs);
  await once(socket, "connect");
  // by this name the library judges the certificate
  return Object.assign(socket, target);
}

async function importPg(): Promise<PgModule | null> {
  try {
    return (await import("pg" as string)) as PgModule;
  } catch (error) {
    return nullIfMissing("pg", error);
  }
}

async function importPostgresJs(): Promise<PostgresJsModule | null> {
  try {
    return (await import("postgres" as string)) as PostgresJsModule;
  } catch (error) {
    return nullIfMissing("postgres", error);
  }
}

async function importMysql2(): Promise<Mysql2Module | null> {
  try {
    return (await import("mysql2" as string)) as Mysql2Module;
  } catch (error) {
    return nullIfMissing("mysql2", error);
  }
}

async function importMariadb(): Promise<MariadbModule | null> {
  try {
    return (await import("mariadb" as string)) as MariadbModule;
  } catch (error) {
    return nullIfMissing("mariadb", error);
  }
}

interface Mysql2Module {
  createPool(options: object): Mysql2PoolLike;
  /** The exports of a CommonJS module. */
  readonly default?: Mysql2Module;
}

interface MariadbModule {
  createConnection(options: object): Promise<MariadbConnectionLike>;
}

interface PostgresJsModule {
  readonly default: (urlOrOptions: string | object, options?: object) => PostgresJsLike;
}

interface PgModule {
  readonly Client: new (options: object) => PgClientLike;
  readonly Pool: new (options: object) => PgPoolLike;
  /** The exports of a CommonJS module. */
  readonly default?: PgModule;
}
