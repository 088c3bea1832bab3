/** Explains errors of PostgreSQL: what is wrong and what to do, without statements and their parameters. */

import { isFatalError } from "../../../errors.ts";
import { DatabaseError, describeAttempts } from "../database-error.ts";
import { explainTlsError } from "../tls-errors.ts";

/** The functions refuse to run with a setting of the session: its isolation level, or its character set. */
export const WRONG_SETTING = "HF001";
/** A lock was not to be had in time. */
export const LOCK_TIMEOUT = "55P03";
/** Something was to be written in a transaction that only reads. */
export const READ_ONLY = "25006";
/** The functions are those of a newer version of the library (schema.sql). */
export const NEWER_REVISION = "HF003";

/** Of a schema, a table and a function. */
const MISSING_CODES = /^(?:3F000|42P01|42883)$/;
const MISSING_TABLES =
  "Holdfast's tables or functions are missing: let open() create them (option createTables), or run the SQL of postgresMigration()";

/** Of pg, which has no code for it. The connection stays open: each retry would open another. */
const MISSING_PASSWORD = /^SASL: .*client password must be/;

interface KnownError {
  /** SQLSTATEs, or codes of Node. */
  readonly codes: RegExp;
  readonly explanation: string;
  /** A retry is useless while a driver opens. Later it is not: the database may recover. */
  readonly isFatal?: true;
}

/** The first match counts. All others are passed on with message and code. */
const KNOWN_ERRORS: readonly KnownError[] = [
  {
    codes: /^42501$/,
    explanation: "this role lacks a right; the comments of postgresMigration() name the grants that it needs",
    isFatal: true,
  },
  { codes: MISSING_CODES, explanation: MISSING_TABLES, isFatal: true },
  {
    // open() leaves tables of its own revision as they are
    codes: /^HF002$/,
    explanation: "rows of the buckets table are missing: run the SQL of postgresMigration(), which inserts them",
    isFatal: true,
  },
  {
    codes: /^25006$/,
    explanation:
      "this server is a standby, or the database is read-only: connect to the primary server, with default_transaction_read_only off",
    isFatal: true,
  },
  {
    codes: /^28/,
    explanation: "the server refuses the login: check user, password, and the server's pg_hba.conf",
    isFatal: true,
  },
  { codes: /^3D000$/, explanation: "the database does not exist: create it, or name another", isFatal: true },
  {
    codes: /^57014$/,
    explanation:
      "the server cancelled the statement: it took longer than a call may, statement_timeout is too short for a lock, or a person cancelled it",
  },
  {
    codes: /^55P03$/,
    explanation:
      "another session keeps one of Holdfast's tables, or a row of the buckets table, locked: find it with pg_blocking_pids(); it has locked or changes the table, is in a transaction that Holdfast did not start, or suspended",
  },
  {
    codes: /^53300$/,
    explanation: "the server has no connection left: raise max_connections, or use smaller pools",
  },
];

/** The SQLSTATE, or the code of Node. */
export function readErrorCode(error: unknown): string {
  const { code } = Object(error) as { readonly code?: unknown };
  return typeof code === "string" ? code : "";
}

/** Explains an error of a call. */
export function explainError(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof DatabaseError || error instanceof TypeError || isFatalError(error))
    return error;
  const code = readErrorCode(error);
  const known = KNOWN_ERRORS.find(({ codes }) => codes.test(code));
  if (known !== undefined) {
    const isFatal = known.isFatal === true;
    return new DatabaseError(`postgres: ${known.explanation} (${code}: ${error.message})`, code, isFatal);
  }
  if (MISSING_PASSWORD.test(error.message)) {
    const explanation = "the server asks for a password, and none is given: set it in the url, or in PGPASSWORD";
    return new DatabaseError(`postgres: ${explanation} (${error.message})`, undefined, true);
  }
  const tlsProblem = explainTlsError(error, "ssl.ca, or sslrootcert in the url");
  if (tlsProblem !== null) return new DatabaseError(`postgres: ${tlsProblem} (${error.message})`, undefined, true);
  if (error.message === "") {
    return new DatabaseError(`postgres: ${describeAttempts(error) || code || error.name}`, code || undefined, false);
  }
  return code === "" ? error : new DatabaseError(`postgres: ${error.message}`, code, false);
}

/** Whether tables or functions are not there. */
export function isMissingError(error: unknown): boolean {
  return MISSING_CODES.test(readErrorCode(error));
}

/**
 * Whether the server, or its database, only reads. Of a call, which is repeated if the setting of a session may be the
 * cause (plain-transaction.ts).
 */
export function isReadOnlyError(error: unknown): boolean {
  return readErrorCode(error) === READ_ONLY;
}

/** Whether the error ends the connection or leaves it unusable. A statement that failed alone does neither. */
export function breaksConnection(error: unknown): boolean {
  const code = readErrorCode(error);
  return !/^[0-9A-Z]{5}$/.test(code) || /^(?:08|57P|XX)/.test(code);
}
