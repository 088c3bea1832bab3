/** Named locks of MariaDB and MySQL (GET_LOCK). */

import { hash } from "node:crypto";
import { FatalDriverError } from "../../../errors.ts";
import type { Check } from "../../../spi/driver.ts";
import { memoize } from "../../../util/memoize.ts";
import type { AdvisoryDialect, ServerLock } from "../advisory/dialect.ts";
import { WAIT_MS } from "../advisory/dialect.ts";
import { isMysqlServerError } from "../clients/mysql-protocol.ts";
import type { SqlConnection, SqlResult, SqlRow, SqlValue } from "../clients/types.ts";
import type { MysqlAdvisoryWarning } from "./advisory-options.ts";
import { checkCluster, checkConnections, checkRole, checkVersion } from "./diagnostics.ts";
import { explainError } from "./errors.ts";
import type { ServerVariables } from "./server-variables.ts";
import { readVariables } from "./server-variables.ts";

/** MySQL refuses longer names. */
const MAX_NAME_LENGTH = 64;
/** Begins the names of locks, so that people see whose they are. */
const NAME_PREFIX = "holdfast:";

const IDENTIFY = "SELECT CONNECTION_ID() AS id, @@GLOBAL.read_only AS read_only";

/** The statement of a wait contains its name as hexadecimal digits. */
const FIND_WAIT = "SELECT id FROM information_schema.processlist WHERE id = ? AND INSTR(LOWER(info), ?) > 0";

export function createMysqlAdvisoryDialect(keyToName?: (key: string) => string): AdvisoryDialect {
  return {
    name: "mysql-advisory",
    permits: "one",
    lockOption: "keyToName",
    // the user's function may have effects, so that each of its calls counts
    toLock: keyToName === undefined ? memoize(hashToLock) : (key) => toLock(key, keyToName(key)),
    async identify(connection) {
      const row = await readRow(connection, IDENTIFY);
      if (Number(row.read_only) !== 0) {
        throw new FatalDriverError(
          "mysql-advisory: the server is read-only: its locks are its own, so connect to the primary server",
        );
      }
      return String(row.id);
    },
    async prepare(connection, idleMs) {
      const { product } = await readVariables(connection);
      const limit = product === "MariaDB" ? "max_statement_time" : "max_execution_time";
      await connection.query(`SET SESSION wait_timeout = ?, SESSION autocommit = 1, SESSION ${limit} = 0`, [
        Math.ceil(idleMs / 1_000),
      ]);
    },
    tryLock: (connection, { lock }) => connection.query("SELECT GET_LOCK(?, 0) AS result", lock.values).then(isSuccess),
    waitForLock: (connection, { lock }) =>
      connection.query("SELECT GET_LOCK(?, ?) AS result", [...lock.values, WAIT_MS / 1_000]).then(isSuccess),
    unlock: (connection, { lock }) => connection.query("SELECT RELEASE_LOCK(?) AS result", lock.values).then(isSuccess),
    async unlockAll(connection, modes) {
      const calls = modes.map((_, index) => `RELEASE_LOCK(?) AS lock_${index}`);
      const values = modes.flatMap(({ lock }) => lock.values);
      const row = await readRow(connection, `SELECT ${calls.join(", ")}`, values);
      return modes.map((_, index) => Number(row[`lock_${index}`]) === 1);
    },
    async cancelWait(connection, sessionId, { lock }) {
      const [name] = lock.values;
      const row = await readRow(connection, FIND_WAIT, [sessionId, Buffer.from(String(name)).toString("hex")]);
      if (row.id !== undefined) await connection.query(`KILL QUERY ${Number(row.id)}`);
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
  throw new FatalDriverError(
    `mysql-advisory: the option keyToName must return 1 to ${MAX_NAME_LENGTH} printable characters of ASCII, without a space at either end`,
    { keys: [key] },
  );
}

async function readRow(connection: SqlConnection, text: string, values?: readonly SqlValue[]): Promise<SqlRow> {
  return (await connection.query(text, values)).rows[0] ?? {};
}

/**
 * Whether GET_LOCK or RELEASE_LOCK returned 1. GET_LOCK returns 0 when its time limit has passed, and null when its statement was killed.
 * RELEASE_LOCK returns 0 when another session has the lock, and null when no session has it.
 */
function isSuccess({ rows: [row] }: SqlResult): boolean {
  return Number(row?.result) === 1;
}

function checkAdvisoryCluster(variables: ServerVariables): Check & { readonly name: MysqlAdvisoryWarning } {
  const check = checkCluster(variables);
  if (check.status === "ok") return check;
  const message = "this is a node of a cluster (untested), and each node has locks of its own";
  return { ...check, message, hint: "connect all processes to the same node, or use mysql() with its tables" };
}
