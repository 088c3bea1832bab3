/** Detects the library of a database server's client by its methods and adapts it. */

import type { MariadbConnectionLike, MariadbPoolLike } from "./mariadb.ts";
import { adaptMariadbConnection, adaptMariadbPool } from "./mariadb.ts";
import { hasMethods, readMembers } from "./members.ts";
import type { Mysql2ConnectionLike, Mysql2PoolLike } from "./mysql2.ts";
import { adaptMysql2Connection, adaptMysql2Pool } from "./mysql2.ts";
import type { PgClientLike, PgPoolLike } from "./pg.ts";
import { adaptPgClient, adaptPgPool } from "./pg.ts";
import type { PostgresJsLike } from "./postgres-js.ts";
import { adaptPostgresJs } from "./postgres-js.ts";
import type { SqlClient } from "./types.ts";

/** @throws TypeError if it is not a client for PostgreSQL, or not a supported one */
export function adaptPostgresClient(client: unknown): SqlClient {
  const members = readMembers(client);
  if (hasMethods(members, "connect", "query", "end", "on")) {
    if (typeof members.totalCount === "number") return adaptPgPool(client as PgPoolLike);
    if (hasMethods(members, "getTypeParser")) return adaptPgClient(client as PgClientLike);
  }
  if (hasMethods(members, "unsafe", "savepoint")) {
    throw new TypeError("client must be the sql of postgres.js itself, not that of a transaction");
  }
  if (hasMethods(members, "unsafe", "reserve", "begin", "end")) return adaptPostgresJs(client as PostgresJsLike);
  throw new TypeError(
    "client must be a client for PostgreSQL: a Pool or a Client of pg, or the sql of postgres.js (the package postgres)",
  );
}

/** @throws TypeError if it is not a client for MariaDB or MySQL, or not a supported one */
export function adaptMysqlClient(client: unknown): SqlClient {
  const members = readMembers(client);
  // the classes of mysql2/promise wrap those with callbacks
  const core = hasMethods(members, "execute") ? (members.pool ?? members.connection ?? client) : client;
  const coreMembers = readMembers(core);
  if (hasMethods(coreMembers, "getConnection", "execute", "promise", "end"))
    return adaptMysql2Pool(core as Mysql2PoolLike);
  if (hasMethods(coreMembers, "query", "execute", "promise", "destroy")) {
    return adaptMysql2Connection(core as Mysql2ConnectionLike);
  }
  if (hasMethods(members, "query", "batch", "importFile", "end")) {
    const call = members.getConnection ?? members.query;
    // the classes of mariadb/callback have the same methods with one more parameter
    if (readMembers(call).length !== (members.getConnection === undefined ? 2 : 0)) {
      throw new TypeError("client must be of mariadb, not of mariadb/callback");
    }
    return members.getConnection === undefined
      ? adaptMariadbConnection(client as MariadbConnectionLike)
      : adaptMariadbPool(client as MariadbPoolLike);
  }
  throw new TypeError("client must be a client for MariaDB or MySQL: a pool or a connection of mysql2 or mariadb");
}
