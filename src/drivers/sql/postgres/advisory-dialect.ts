/** Advisory locks of PostgreSQL. */

import { FatalDriverError } from "../../../errors.ts";
import type { Check } from "../../../spi/driver.ts";
import { memoize } from "../../../util/memoize.ts";
import type { AdvisoryDialect, LockMode, ServerLock } from "../advisory/dialect.ts";
import { WAIT_MS } from "../advisory/dialect.ts";
import type { LockNumber } from "../advisory/lock-number.ts";
import { hashKey, toCall, toParameters } from "../advisory/lock-number.ts";
import { isPostgresServerError } from "../clients/postgres-protocol.ts";
import type { SqlConnection, SqlResult, SqlRow } from "../clients/types.ts";
import type { PostgresAdvisoryWarning } from "./advisory-options.ts";
import { explainError, readErrorCode } from "./errors.ts";

const IDENTIFY = "select pg_catalog.pg_backend_pid() as id, pg_catalog.pg_is_in_recovery() as is_standby";

/** lock_timeout has ended the wait. */
const LOCK_NOT_AVAILABLE = "55P03";

/** The first version that ends sessions which are silent (idle_session_timeout). */
const SESSION_TIMEOUT_VERSION = 14;

/** How often a server looks whether the client of a waiting session is still there. */
const CLIENT_CHECK_MS = 5_000;

/** Of a list of settings, those that this version has. Windows cannot check connections. */
const PREPARE = `select pg_catalog.count(pg_catalog.set_config(settings.name, wanted.value, false))::int as count
from (values ('statement_timeout', '0'), ('transaction_timeout', '0'), ('lock_timeout', $1::text),
  ('idle_session_timeout', $2::text), ('client_connection_check_interval', $3::text)) as wanted (name, value)
join pg_catalog.pg_settings as settings on settings.name = wanted.name
where settings.name <> 'client_connection_check_interval' or pg_catalog.version() !~* 'windows|mingw|visual c'`;

/** The view shows a lock of 64 bits as two halves, with objsubid 1; a pair has 2. */
const CANCEL = `select pg_catalog.pg_cancel_backend(pid) from pg_catalog.pg_locks
where pid = $1::text::int and locktype = 'advisory' and not granted`;

const TRY_LOCK = createStatements("pg_try_advisory_lock");
const WAIT_FOR_LOCK = createStatements("pg_advisory_lock", "::text");
const UNLOCK = createStatements("pg_advisory_unlock");

const READ_SETTINGS = `select pg_catalog.current_setting('server_version') as version,
  pg_catalog.current_setting('server_version_num')::int as version_number,
  pg_catalog.pg_is_in_recovery() as is_standby,
  pg_catalog.current_setting('idle_session_timeout', true) as idle_timeout,
  pg_catalog.current_setting('max_connections')::int as max_connections,
  (select pg_catalog.count(*)::int from pg_catalog.pg_stat_activity where backend_type = 'client backend') as connections,
  (select pg_catalog.count(*)::int from pg_catalog.pg_locks where locktype = 'advisory' and granted) as held,
  (select pg_catalog.count(*)::int from pg_catalog.pg_locks where locktype = 'advisory' and not granted) as waiting`;

/** Share of the connections above which refusals are likely soon. */
const NEARLY_FULL = 0.9;

interface AdvisoryCheck extends Check {
  readonly name: PostgresAdvisoryWarning;
}

export function createPostgresAdvisoryDialect(keyToLock?: (key: string) => LockNumber): AdvisoryDialect {
  return {
    name: "postgres-advisory",
    permits: "shared",
    lockOption: "keyToLock",
    // the user's function may have effects, so that each of its calls counts
    toLock:
      keyToLock === undefined ? memoize((key) => toLock(key, hashKey(key))) : (key) => toLock(key, keyToLock(key)),
    async identify(connection) {
      const row = await readRow(connection, IDENTIFY);
      if (row.is_standby === true) {
        throw new FatalDriverError(
          "postgres-advisory: this server is a standby (25006), whose locks the primary server does not know: connect to the primary server",
        );
      }
      return String(row.id);
    },
    async prepare(connection, idleMs) {
      await connection.query(PREPARE, [String(WAIT_MS), String(idleMs), String(CLIENT_CHECK_MS)]);
    },
    tryLock: (connection, mode) => connection.query(TRY_LOCK(mode), mode.lock.values).then(isSuccess),
    async waitForLock(connection, mode) {
      try {
        await connection.query(WAIT_FOR_LOCK(mode), mode.lock.values);
        return true;
      } catch (error) {
        if (readErrorCode(error) === LOCK_NOT_AVAILABLE) return false;
        throw error;
      }
    },
    unlock: (connection, mode) => connection.query(UNLOCK(mode), mode.lock.values).then(isSuccess),
    async unlockAll(connection, modes) {
      const calls = modes.map((mode, index) => `${literalCallOf("pg_advisory_unlock", mode)} as lock_${index}`);
      const row = await readRow(connection, `select ${calls.join(", ")}`);
      return modes.map((_, index) => row[`lock_${index}`] === true);
    },
    async cancelWait(connection, sessionId) {
      await connection.query(CANCEL, [sessionId]);
    },
    async diagnose(connection) {
      const row = await readRow(connection, READ_SETTINGS);
      return [checkVersion(row), checkRole(row), checkLease(row), checkConnections(row), checkLocks(row)];
    },
    isServerError: isPostgresServerError,
    explainError,
  };
}

/** The statements that call a function of locks, each as the same text: it is prepared once. */
function createStatements(name: string, cast = ""): (mode: LockMode) => string {
  const textsOf = (isShared: boolean): readonly string[] =>
    [["0"], ["0", "0"]].map((parameters) => `select ${toCall(nameOf(name, isShared), parameters)}${cast} as result`);
  const [exclusive, shared] = [textsOf(false), textsOf(true)];
  return ({ lock, isShared }) => (isShared ? shared : exclusive)[lock.values.length - 1] as string;
}

function toLock(key: string, lock: LockNumber): ServerLock {
  const values = toParameters(key, lock);
  return { name: values.join(","), values };
}

async function readRow(connection: SqlConnection, text: string): Promise<SqlRow> {
  return (await connection.query(text)).rows[0] ?? {};
}

function isSuccess({ rows: [row] }: SqlResult): boolean {
  return row?.result === true;
}

function nameOf(name: string, isShared: boolean): string {
  return isShared ? `${name}_shared` : name;
}

/** With the numbers in the text, since a statement takes at most 65,535 parameters. They are integers: see toParameters(). */
function literalCallOf(name: string, mode: LockMode): string {
  const { values } = mode.lock;
  const type = values.length === 1 ? "bigint" : "int";
  return `pg_catalog.${nameOf(name, mode.isShared)}(${values.map((value) => `'${value}'::${type}`).join(", ")})`;
}

function checkVersion({ version }: SqlRow): AdvisoryCheck {
  return { status: "ok", name: "version", message: `PostgreSQL ${version}` };
}

function checkRole({ is_standby: isStandby }: SqlRow): AdvisoryCheck {
  if (isStandby !== true) return { status: "ok", name: "role", message: "primary" };
  return { status: "fail", name: "role", message: "this is a standby", hint: "connect to the primary server" };
}

function checkLease({ version_number: versionNumber, idle_timeout: idleTimeout }: SqlRow): AdvisoryCheck {
  const name = "lease";
  if (Number(versionNumber) >= SESSION_TIMEOUT_VERSION * 10_000) {
    return {
      status: "ok",
      name,
      message: `the server ends a silent session after ${idleTimeout}, and frees its locks`,
    };
  }
  return {
    status: "warn",
    name,
    message:
      "the server does not end silent sessions: a stopped process keeps its locks as long as its connection lives",
    hint: `use PostgreSQL ${SESSION_TIMEOUT_VERSION} or later, or lower tcp_keepalives_idle and tcp_user_timeout`,
  };
}

function checkConnections({ connections, max_connections: maximum }: SqlRow): AdvisoryCheck {
  const name = "connections";
  const message = `${connections} of ${maximum} connections are in use`;
  if (Number(connections) < NEARLY_FULL * Number(maximum)) return { status: "ok", name, message };
  return { status: "warn", name, message, hint: "raise max_connections, or use smaller pools" };
}

function checkLocks({ held, waiting }: SqlRow): AdvisoryCheck {
  return {
    status: "ok",
    name: "locks",
    message: `${held} advisory locks held, ${waiting} waited for, by all programs`,
  };
}
