/** Named locks of MariaDB and MySQL (GET_LOCK). */

import { hash } from "node:crypto";
import { StoreRefusedError } from "../../../errors.ts";
import type { Check } from "../../../spi/driver.ts";
import { memoize } from "../../../util/memoize.ts";
import type { AdvisoryDialect, ServerLock, SessionMark } from "../advisory/dialect.ts";
import { WAIT_MS } from "../advisory/dialect.ts";
import { isMysqlServerError } from "../clients/mysql-protocol.ts";
import type { SqlConnection, SqlResult, SqlRow, SqlValue } from "../clients/types.ts";
import type { MysqlAdvisoryWarning } from "./advisory-options.ts";
import { checkCluster, checkConnections, checkRole, checkVersion } from "./diagnostics.ts";
import { explainError } from "./errors.ts";
import { IS_READ_ONLY } from "./read-only.ts";
import type { ServerVariables } from "./server-variables.ts";
import { readVariables } from "./server-variables.ts";

/** MySQL refuses longer names. */
const MAX_NAME_LENGTH = 64;
/** Begins the names of locks, so that people see whose they are. */
const NAME_PREFIX = "holdfast:";

const IDENTIFY = `select connection_id() as id, ${IS_READ_ONLY} as read_only`;

/** What a call of GET_LOCK or RELEASE_LOCK never returns. */
const NOT_MARKED = -1;

/** Its number too: some proxies repeat what was set in each session that they use. */
const IS_MARKED = "@holdfast_session = ? and connection_id() = ?";
const PROBE = `select if(${IS_MARKED}, ${IS_READ_ONLY}, null) as read_only`;
const TRY_LOCK = createStatement("get_lock(?, 0)");
const WAIT_FOR_LOCK = createStatement("get_lock(?, ?)");
const UNLOCK = createStatement("release_lock(?)");

/**
 * A server that was started again has other sessions, with the same numbers. It counts to NOW, which another user of
 * the session may have set (SET timestamp).
 */
const READ_UPTIME = `select variable_value + timestampdiff(second, now(), sysdate()) as uptime
  from /*M! information_schema */ /*!80013 performance_schema */ .global_status where variable_name = 'Uptime'`;
/** One that has been idle for a second is not just being given to another client. */
const FIND_UNUSED =
  "select command = 'Sleep' and time >= 1 as is_unused from information_schema.processlist where id = ?";

/** The statement of a wait contains its name as hexadecimal digits. */
const FIND_WAIT = "select id from information_schema.processlist where id = ? and instr(lower(info), ?) > 0";

export function createMysqlAdvisoryDialect(keyToName?: (key: string) => string): AdvisoryDialect {
  return {
    name: "mysql-advisory",
    permits: "one",
    lockOption: "keyToName",
    // the user's function may have effects, so that each of its calls counts
    toLock: keyToName === undefined ? memoize(hashToLock) : (key) => toLock(key, keyToName(key)),
    async identify(connection) {
      const row = await readRow(connection, IDENTIFY);
      if (Number(row.read_only) !== 0) throw createReadOnlyError();
      return { id: String(row.id), transactionCount: null };
    },
    async prepare(connection, session, idleMs) {
      const { product } = await readVariables(connection);
      const limit = limitOf(product);
      const mark = toNumber(session);
      await connection.query(
        "set @holdfast_session = if(@holdfast_session is null and connection_id() = ?, ?, @holdfast_session)",
        [Number(session.id), mark],
      );
      // a statement that meets another session changes nothing
      await connection.query(
        `set session wait_timeout = if(${IS_MARKED}, ?, @@session.wait_timeout), session autocommit = if(${IS_MARKED}, 1, @@session.autocommit), session ${limit} = if(${IS_MARKED}, 0, @@session.${limit})`,
        [...markOf(session), Math.ceil(idleMs / 1_000), ...markOf(session), ...markOf(session)],
      );
      return probe(connection, session);
    },
    async restore(connection, session) {
      const isUnlocked = await connection
        .query(createStatement("RELEASE_ALL_LOCKS()"), markOf(session))
        .then(({ rows: [row] }) => Number(row?.result) !== NOT_MARKED);
      if (!isUnlocked) return null;
      const { product } = await readVariables(connection);
      const settings = ["wait_timeout", "autocommit", limitOf(product)];
      const assignments = settings.map(
        (name) => `SESSION ${name} = IF(${IS_MARKED}, @@GLOBAL.${name}, @@SESSION.${name})`,
      );
      await connection.query(
        `set ${assignments.join(", ")}, @holdfast_session = if(${IS_MARKED}, null, @holdfast_session)`,
        [...settings, ""].flatMap(() => markOf(session)),
      );
      return true;
    },
    async endSession(connection, id, ageMs) {
      const { uptime } = await readRow(connection, READ_UPTIME);
      if (Number(uptime) * 1_000 < ageMs - 1_000) return true;
      const { is_unused: isUnused } = await readRow(connection, FIND_UNUSED, [Number(id)]);
      if (Number(isUnused) === 1) await connection.query(`kill ${Number(id)}`);
      return isUnused === undefined || Number(isUnused) === 1;
    },
    probe,
    tryLock: (connection, session, { lock }) =>
      connection.query(TRY_LOCK, [...markOf(session), ...lock.values]).then(toResult),
    waitForLock: (connection, session, { lock }) =>
      connection.query(WAIT_FOR_LOCK, [...markOf(session), ...lock.values, WAIT_MS / 1_000]).then(toResult),
    unlock: (connection, session, { lock }) =>
      connection.query(UNLOCK, [...markOf(session), ...lock.values]).then(toResult),
    async unlockAll(connection, session, modes) {
      const calls = modes.map((_, index) => `if(${IS_MARKED}, release_lock(?), ${NOT_MARKED}) as lock_${index}`);
      const values = modes.flatMap(({ lock }) => [...markOf(session), ...lock.values]);
      const row = await readRow(connection, `select ${calls.join(", ")}`, values);
      if (Number(row.lock_0) === NOT_MARKED) return null;
      return modes.map((_, index) => Number(row[`lock_${index}`]) === 1);
    },
    async cancelWait(connection, sessionId, { lock }) {
      const [name] = lock.values;
      const row = await readRow(connection, FIND_WAIT, [sessionId, Buffer.from(String(name)).toString("hex")]);
      if (row.id !== undefined) await connection.query(`kill query ${Number(row.id)}`);
    },
    async diagnose(connection) {
      const variables = await readVariables(connection);
      return [
        checkVersion(variables),
        await checkRole(connection, variables),
        checkAdvisoryCluster(variables),
        await checkConnections(connection, variables),
      ];
    },
    isServerError: isMysqlServerError,
    explainError,
  };
}

/** The first 128 bits of the key's SHA-256. All clients must agree on it. */
function hashToLock(key: string): ServerLock {
  const name = NAME_PREFIX + hash("sha256", key, "hex").slice(0, 32);
  return { name, values: [name] };
}

/** Servers differ in whether they compare names by case, so names that differ only in it count as one lock. */
function toLock(key: string, name: string): ServerLock {
  // no other characters: their comparison depends on the server, too
  if (typeof name === "string" && /^[!-~](?:[ -~]*[!-~])?$/.test(name) && name.length <= MAX_NAME_LENGTH) {
    return { name: name.toLowerCase(), values: [name] };
  }
  throw new StoreRefusedError(
    `mysql-advisory: the option keyToName must return 1 to ${MAX_NAME_LENGTH} printable characters of ASCII, without a space at either end`,
    { keys: [key] },
  );
}

async function readRow(connection: SqlConnection, text: string, values?: readonly SqlValue[]): Promise<SqlRow> {
  return (await connection.query(text, values)).rows[0] ?? {};
}

/** A statement that calls the function in the marked session only. Its values begin with markOf(). */
function createStatement(call: string): string {
  return `select if(${IS_MARKED}, ${call}, ${NOT_MARKED}) as result`;
}

/** The parameters of IS_MARKED. */
function markOf(session: SessionMark): readonly [number, number] {
  return [toNumber(session), Number(session.id)];
}

/** The mark as a number of 48 bits: texts would be compared by a collation, which depends on the connection. */
function toNumber({ mark }: SessionMark): number {
  return Number.parseInt(hash("sha256", mark, "hex").slice(0, 12), 16);
}

async function probe(connection: SqlConnection, session: SessionMark): Promise<true | null> {
  const { read_only: isReadOnly = null } = await readRow(connection, PROBE, markOf(session));
  if (isReadOnly === null) return null;
  if (Number(isReadOnly) !== 0) throw createReadOnlyError();
  return true;
}

/**
 * Whether GET_LOCK or RELEASE_LOCK returned 1. GET_LOCK returns 0 when its time limit has passed, and null when its
 * statement was killed. RELEASE_LOCK returns 0 when another session has the lock, and null when no session has it.
 * Null: it met another session.
 */
function toResult({ rows: [row] }: SqlResult): boolean | null {
  const result = Number(row?.result);
  return result === NOT_MARKED ? null : result === 1;
}

/** The name of the limit of a statement's time. */
function limitOf(product: ServerVariables["product"]): string {
  return product === "MariaDB" ? "max_statement_time" : "max_execution_time";
}

function createReadOnlyError(): StoreRefusedError {
  return new StoreRefusedError(
    "mysql-advisory: the server is read-only: its locks are its own, so connect to the primary server",
  );
}

function checkAdvisoryCluster(variables: ServerVariables): Check & { readonly name: MysqlAdvisoryWarning } {
  const check = checkCluster(variables);
  if (check.status === "ok") return check;
  const message = "this is a node of a cluster (untested), and each node has locks of its own";
  return { ...check, message, hint: "connect all processes to the same node, or use mysql() with its tables" };
}
