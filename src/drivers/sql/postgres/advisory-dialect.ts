/** Advisory locks of PostgreSQL. */

import { StoreRefusedError } from "../../../errors.ts";
import type { Check } from "../../../spi/driver.ts";
import { memoize } from "../../../util/memoize.ts";
import type { AdvisoryDialect, AdvisoryMode, ServerLock, SessionMark } from "../advisory/dialect.ts";
import { WAIT_MS } from "../advisory/dialect.ts";
import type { LockNumber } from "../advisory/lock-number.ts";
import { hashKey, toCall, toParameters } from "../advisory/lock-number.ts";
import { isPostgresServerError } from "../clients/postgres-protocol.ts";
import type { SqlConnection, SqlResult, SqlRow, SqlValue } from "../clients/types.ts";
import type { PostgresAdvisoryWarning } from "./advisory-options.ts";
import { explainError, readErrorCode } from "./errors.ts";

/** Each transaction of a session has the next number; the view shows it behind a slash. */
const IDENTIFY = `select pg_catalog.pg_backend_pid() as id, pg_catalog.pg_is_in_recovery() as is_standby,
  (select pg_catalog.split_part(virtualtransaction, '/', 2) from pg_catalog.pg_locks
    where locktype = 'virtualxid' and pid = pg_catalog.pg_backend_pid()) as transaction`;

/** A setting that exists nowhere else, so it has no value until a session gets one. */
const MARK = "pg_catalog.current_setting('holdfast.session', true)";

/** lock_timeout has ended the wait. */
const LOCK_NOT_AVAILABLE = "55P03";

/** The first version that ends sessions which are silent (idle_session_timeout). */
const SESSION_TIMEOUT_VERSION = 14;

/** How often a server looks whether the client of a waiting session is still there. */
const CLIENT_CHECK_MS = 5_000;

/** A session of a pooler that has been idle for as long is not just being given to another client. */
const UNUSED_MS = 250;

/** How many signs of life in a row a silent client may owe to TCP. */
const KEEPALIVE_COUNT = 3;
/**
 * In seconds, until the first and between two. In all not less than `idleMs`: its locks must not be free while it
 * counts on them.
 */
const toKeepaliveSeconds = (idleMs: number): number => Math.ceil(idleMs / 1_000 / (1 + KEEPALIVE_COUNT));

/**
 * Of these settings, those that this version has. Windows cannot check connections. Without those of TCP, waiting
 * sessions whose network is cut would be found only one after the other, each when it has had the lock for `idleMs`.
 */
const SETTINGS: readonly (readonly [name: string, choose: (idleMs: number) => number])[] = [
  ["statement_timeout", () => 0],
  ["transaction_timeout", () => 0],
  ["lock_timeout", () => WAIT_MS],
  ["idle_session_timeout", (idleMs) => idleMs],
  ["client_connection_check_interval", () => CLIENT_CHECK_MS],
  ["tcp_keepalives_idle", toKeepaliveSeconds],
  ["tcp_keepalives_interval", toKeepaliveSeconds],
  ["tcp_keepalives_count", () => KEEPALIVE_COUNT],
];
const HAS_SETTING = "name <> 'client_connection_check_interval' or pg_catalog.version() !~* 'windows|mingw|visual c'";

/** The view shows a lock of 64 bits as two halves, with objsubid 1; a pair has 2. */
const CANCEL = `select pg_catalog.pg_cancel_backend(pid) from pg_catalog.pg_locks
where pid = $1::text::int and locktype = 'advisory' and not granted`;

const PROBE = `select ${whereMarked("not pg_catalog.pg_is_in_recovery()", "$1", "$2")} as result`;
const TRY_LOCK = createStatements("pg_try_advisory_lock");
const WAIT_FOR_LOCK = createStatements("pg_advisory_lock", " is not null");
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
      if (row.is_standby === true) throw createStandbyError();
      return {
        id: String(row.id),
        transactionCount: row.transaction === null ? null : BigInt(String(row.transaction)),
      };
    },
    async prepare(connection, { id, mark }, idleMs) {
      const wanted = SETTINGS.map(([name, choose]) => `('${name}', '${choose(idleMs)}')`).join(", ");
      // each value is a number or a mark of ours
      const text = `select case when pg_catalog.pg_backend_pid()::text = '${id}' and coalesce(${MARK}, '') = '' then (
        select pg_catalog.count(pg_catalog.set_config(name, value, false)) + pg_catalog.length(pg_catalog.set_config('holdfast.session', '${mark}', false))
        from (values ${wanted}) as wanted (name, value) join pg_catalog.pg_settings using (name) where ${HAS_SETTING}
      ) > 0 end as result`;
      return toMarked(await connection.query(text));
    },
    async restore(connection, { id, mark }) {
      const names = SETTINGS.map(([name]) => `'${name}'`).join(", ");
      const settings = `select pg_catalog.count(pg_catalog.set_config(name, reset_val, false)) +
        pg_catalog.length(pg_catalog.set_config('holdfast.session', '', false)) + pg_catalog.length(pg_catalog.pg_advisory_unlock_all()::text)
        from pg_catalog.pg_settings where name in (${names}) and (${HAS_SETTING})`;
      return toMarked(
        await connection.query(`select ${whereMarked(`(${settings}) > 0`, `'${id}'`, `'${mark}'`)} as result`),
      );
    },
    async endSession(connection, id, ageMs) {
      const row = await readRow(
        connection,
        `select case when state = 'idle' and state_change < pg_catalog.clock_timestamp() - interval '${UNUSED_MS} ms'
            then pg_catalog.pg_terminate_backend(pid) else false end as is_ended
          from pg_catalog.pg_stat_activity
          where pid = ${Number(id)} and backend_start < pg_catalog.clock_timestamp() - interval '${Math.round(ageMs)} ms'`,
      );
      return row.is_ended !== false;
    },
    async probe(connection, { id, mark }) {
      const isPrimary = toResult(await connection.query(PROBE, [id, mark]));
      if (isPrimary === false) throw createStandbyError();
      return isPrimary;
    },
    tryLock: (connection, session, mode) =>
      connection.query(TRY_LOCK(mode), parametersOf(session, mode)).then(toResult),
    async waitForLock(connection, session, mode) {
      try {
        return toResult(await connection.query(WAIT_FOR_LOCK(mode), parametersOf(session, mode)));
      } catch (error) {
        if (readErrorCode(error) === LOCK_NOT_AVAILABLE) return false;
        throw error;
      }
    },
    unlock: (connection, session, mode) => connection.query(UNLOCK(mode), parametersOf(session, mode)).then(toResult),
    async unlockAll(connection, { id, mark }, modes) {
      const calls = modes.map(
        (mode, index) =>
          `${whereMarked(literalCallOf("pg_advisory_unlock", mode), `'${id}'`, `'${mark}'`)} as lock_${index}`,
      );
      const row = await readRow(connection, `select ${calls.join(", ")}`);
      if (row.lock_0 === null) return null;
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

/** An expression whose value is null, without being evaluated, in any session but the marked one. */
function whereMarked(expression: string, id: string, mark: string): string {
  return `case when ${MARK} = ${mark} and pg_catalog.pg_backend_pid()::text = ${id} then ${expression} end`;
}

/** The statements that call a function of locks, each as the same text: it is prepared once. */
function createStatements(name: string, test = ""): (mode: AdvisoryMode) => string {
  const textsOf = (isShared: boolean): readonly string[] =>
    [["0"], ["0", "0"]].map((parameters) => {
      const call = `${toCall(nameOf(name, isShared), parameters)}${test}`;
      return `select ${whereMarked(call, `$${parameters.length + 1}`, `$${parameters.length + 2}`)} as result`;
    });
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

function parametersOf({ id, mark }: SessionMark, { lock }: AdvisoryMode): readonly SqlValue[] {
  return [...lock.values, id, mark];
}

/** Null: the statement met another session. */
function toResult({ rows: [row] }: SqlResult): boolean | null {
  const result = row?.result;
  return typeof result === "boolean" ? result : null;
}

function toMarked(result: SqlResult): true | null {
  return toResult(result) === true ? true : null;
}

function createStandbyError(): StoreRefusedError {
  return new StoreRefusedError(
    "postgres-advisory: this server is a standby (25006), whose locks the primary server does not know: connect to the primary server",
  );
}

function nameOf(name: string, isShared: boolean): string {
  return isShared ? `${name}_shared` : name;
}

/**
 * With the numbers in the text, since a statement takes at most 65,535 parameters. They are integers: see
 * toParameters().
 */
function literalCallOf(name: string, mode: AdvisoryMode): string {
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
    hint: `use PostgreSQL ${SESSION_TIMEOUT_VERSION} or later`,
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
