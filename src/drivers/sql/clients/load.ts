/**
 * Creates a client for the url of a database server with a library that is installed. Nothing is loaded unless a url
 * needs it.
 */

import { once } from "node:events";
import { connect, Socket } from "node:net";
import { createConnectError } from "../../../net/transport.ts";
import { systemClock } from "../../../util/clock.ts";
import { createMissingError, nullIfMissing } from "../../missing-library.ts";
import { ConnectionPool } from "./connection-pool.ts";
import type { MariadbConnectionLike } from "./mariadb.ts";
import { adaptDedicatedMariadb } from "./mariadb.ts";
import { isMysqlServerError } from "./mysql-protocol.ts";
import type { Mysql2ConnectionLike } from "./mysql2.ts";
import { waitForMysql2 } from "./mysql2.ts";
import type { PgClientLike, PgPoolLike } from "./pg.ts";
import { adaptPgPool } from "./pg.ts";
import type { PostgresJsLike } from "./postgres-js.ts";
import { connectPostgresJs } from "./postgres-js.ts";
import { isPostgresServerError } from "./postgres-protocol.ts";
import type { DedicatedConnection, SqlClient } from "./types.ts";
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
const CONNECT_ATTRIBUTES = { program_name: APPLICATION_NAME };

/**
 * A pool for a url of PostgreSQL. Connects when it is first used.
 * @param url without parameters of the driver
 * @throws TypeError if the url is invalid; its message does not contain the url
 * @throws StoreRefusedError if no library is installed
 */
export async function loadPostgresClient(url: string, options: LoadOptions): Promise<SqlClient> {
  const pg = await importPg();
  if (pg !== null) return openPg(pg.default ?? pg, url, options);
  const postgresJs = await importPostgresJs();
  if (postgresJs !== null) return openPostgresJs(postgresJs.default, url, options);
  throw createMissingError("PostgreSQL urls", ["pg", "postgres"]);
}

function openPg({ Client, Pool }: PgModule, url: string, { connectTimeoutMs }: LoadOptions): SqlClient {
  const settings = toPgSettings(takePostgresTls(url, parsePostgresUrl(url)));
  // the timer of the pool would keep the process alive while a connection is made, that of the client does not
  function BoundedClient(options: object): PgClientLike {
    const client = new Client({ ...options, connectionTimeoutMillis: connectTimeoutMs });
    // when the library cannot answer the server's question for a password, it leaves the connection open
    client.connection?.on("error", () => client.connection?.stream?.destroy());
    return client;
  }
  const pool = new Pool({
    ...settings,
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

/**
 * A pool of connections that do not keep the process alive, as those of the library would. Besides, the query for types
 * with which its pool begins a connection ends the process if the connection breaks then; without that query a
 * connection that is reserved while it is opened stays so for ever; and after an error a connection waits for up to
 * seconds before it is opened again.
 */
export function openPostgresJs(
  create: PostgresJsModule["default"],
  url: string,
  { connectTimeoutMs }: LoadOptions,
): SqlClient {
  const { url: plainUrl, options } = toPostgresJsSettings(takePostgresTls(url, parsePostgresUrl(url)));
  const settings = {
    ...options,
    connection: { application_name: APPLICATION_NAME },
    onnotice: () => undefined,
    connect_timeout: null,
    idle_timeout: null,
  };
  const connect = (): Promise<DedicatedConnection> =>
    openInTime(connectTimeoutMs, (createSocket) => {
      const socket = (target: PostgresJsTarget): Promise<Socket> => openPostgresJsSocket(target, createSocket);
      return connectPostgresJs((changes) => create(plainUrl, { ...settings, ...changes, socket }), {});
    });
  return createPool(connect, { dialect: "postgres", library: "postgres.js" }, isPostgresServerError);
}

/**
 * A pool for a url of MariaDB or MySQL. Connects when it is first used.
 * @param url without parameters of the driver
 * @throws TypeError if the url is invalid; its message does not contain the url
 * @throws StoreRefusedError if no library is installed
 */
export async function loadMysqlClient(url: string, options: LoadOptions): Promise<SqlClient> {
  const mysql2 = await importMysql2();
  if (mysql2 !== null) return openMysql2(mysql2.default ?? mysql2, url, options);
  const mariadb = await importMariadb();
  if (mariadb !== null) return openMariadb(mariadb, url, options);
  throw createMissingError("MariaDB and MySQL urls", ["mysql2", "mariadb"]);
}

/** A pool of connections that do not keep the process alive, as those of the library would. */
function openMysql2({ createConnection }: Mysql2Module, url: string, { connectTimeoutMs }: LoadOptions): SqlClient {
  const endpoint = parseMysqlUrl(url);
  const { options, ssl } = endpoint;
  const settings = {
    ...options,
    connectAttributes: CONNECT_ATTRIBUTES,
    ...(ssl !== undefined && { ssl: toMysql2Tls(endpoint) }),
    connectTimeout: 0,
  };
  const connect = (): Promise<DedicatedConnection> =>
    openInTime(connectTimeoutMs, (createSocket) =>
      waitForMysql2(createConnection({ ...settings, stream: () => createSocket(options) })),
    );
  return createPool(connect, { dialect: "mysql", library: "mysql2" }, isMysqlServerError);
}

/**
 * A pool of connections that do not keep the process alive, as those of the library would. Besides, its pool repeats a
 * refused login until its timeout, after which it does not say why.
 */
export function openMariadb(
  { createConnection }: MariadbModule,
  url: string,
  { connectTimeoutMs }: LoadOptions,
): SqlClient {
  const { options, ssl } = parseMysqlUrl(url);
  const { socketPath: _, ...target } = options;
  const settings = {
    ...target,
    connectAttributes: CONNECT_ATTRIBUTES,
    // without the host it would compare the certificate of a server that is named by its address with "localhost"
    ...(ssl !== undefined && { ssl: { host: options.host, ...ssl } }),
    connectTimeout: 0,
  };
  const connect = (): Promise<DedicatedConnection> =>
    openInTime(connectTimeoutMs, async (createSocket) =>
      adaptDedicatedMariadb(await createConnection({ ...settings, stream: () => createSocket(options) })),
    );
  return createPool(connect, { dialect: "mysql", library: "mariadb" }, isMysqlServerError);
}

function createPool(
  connectDedicated: () => Promise<DedicatedConnection>,
  { dialect, library }: Pick<SqlClient, "dialect" | "library">,
  isServerError: (error: unknown) => boolean,
): SqlClient {
  const pool = new ConnectionPool(connectDedicated, MAX_CONNECTIONS, isServerError);
  return {
    dialect,
    library,
    connect: () => pool.take(),
    watchBreaks: pool.watchBreaks,
    connectDedicated,
    close: async () => pool.close(),
  };
}

/** Where a socket leads. */
interface SocketTarget {
  readonly host: string;
  readonly port: number;
  readonly socketPath?: string;
}

function createSocket({ host, port, socketPath }: SocketTarget): Socket {
  return connect(
    socketPath === undefined ? { host, port, noDelay: true, keepAlive: true } : { path: socketPath },
  ).unref();
}

/**
 * Opens a connection. After `timeoutMs` it rejects, whatever the library does, which from then on gets no socket.
 */
async function openInTime(
  timeoutMs: number,
  open: (create: (target: SocketTarget) => Socket) => Promise<DedicatedConnection>,
): Promise<DedicatedConnection> {
  const sockets: Socket[] = [];
  let failure: Error | null = null;
  const create = (target: SocketTarget): Socket => {
    if (failure !== null) throw failure;
    const socket = createSocket(target);
    sockets.push(socket);
    return socket;
  };
  return new Promise((resolve, reject) => {
    const fail = (error: Error): void => {
      timer.stop();
      failure = error;
      reject(error);
      for (const socket of sockets) socket.destroy();
    };
    const timer = systemClock.timer(() => fail(createConnectError("ETIMEDOUT", `no answer within ${timeoutMs} ms`)));
    timer.set(systemClock.now() + timeoutMs);
    open(create).then((connection) => {
      timer.stop();
      resolve(connection);
    }, fail);
  });
}

/** Where a connection of postgres.js leads. */
interface PostgresJsTarget {
  readonly host: readonly [string, ...string[]];
  readonly port: readonly [number, ...number[]];
  readonly path?: string | false;
}

async function openPostgresJsSocket(
  { host: [host], port: [port], path }: PostgresJsTarget,
  create: (target: SocketTarget) => Socket,
): Promise<Socket> {
  const socket = create(path ? { host, port, socketPath: path } : { host, port });
  await Promise.race([once(socket, "connect"), once(socket, "close")]);
  // by its host the library judges the certificate
  return Object.assign(socket, { host, port });
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
  createConnection(options: object): Mysql2ConnectionLike;
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
