/** Explains errors of MariaDB and MySQL: what is wrong and what to do, without statements: they contain claim ids. */

import { isFatalError } from "../../../errors.ts";
import { DatabaseError, describeAttempts } from "../database-error.ts";
import { explainTlsError } from "../tls-errors.ts";

/** --read-only, a transaction that only reads, --innodb-read-only, super_read_only of MySQL is the first. */
const READ_ONLY: readonly number[] = [1290, 1792, 1836];

/** A transaction is open on the connection that Holdfast did not start (ER_CANT_CHANGE_TX_CHARACTERISTICS). */
const TRANSACTION_OPEN = 1568;

const MISSING_TABLES =
  "Holdfast's tables or procedures are missing: let open() create them (option createTables), or run the SQL of mysqlMigration()";

const MISSING_RIGHT = "this user lacks a right; the comments of mysqlMigration() name the grants that it needs";

interface KnownError {
  readonly numbers: readonly number[];
  readonly explanation: string;
  /** A retry is useless while a driver opens. Later it is not: the database may recover. */
  readonly isFatal?: true;
  /** The server rolled back, or never started, the transaction of a procedure. */
  readonly endsTransaction?: true;
  /** The session may be the cause, which another user of the pool has left in this state. */
  readonly isOfSession?: true;
}

/**
 * By the numbers of the servers, which are the same for MariaDB and MySQL. All others are passed on without their
 * statements.
 */
const KNOWN_ERRORS: readonly KnownError[] = [
  {
    numbers: [1044],
    explanation: "this user has no right to the database, or it does not exist: check its name and the user's rights",
    isFatal: true,
    endsTransaction: true,
    isOfSession: true,
  },
  {
    numbers: [1142, 1143, 1227, 1370],
    explanation: MISSING_RIGHT,
    isFatal: true,
    endsTransaction: true,
    isOfSession: true,
  },
  { numbers: [1146, 1305, 1318], explanation: MISSING_TABLES, isFatal: true, endsTransaction: true },
  {
    numbers: READ_ONLY,
    explanation: "the server is read-only: connect to the primary server",
    isFatal: true,
    endsTransaction: true,
  },
  {
    numbers: [1045, 1698, 1251, 3118],
    explanation: "the server refuses the login: check user, password, and the hosts that the user may connect from",
    isFatal: true,
  },
  { numbers: [1049], explanation: "the database does not exist: create it, or name another", isFatal: true },
  {
    numbers: [TRANSACTION_OPEN],
    explanation:
      "a transaction is open on this connection, and its statements must not be committed with a lock's: pass a pool, or a connection that no transaction uses",
    isFatal: true,
    endsTransaction: true,
    isOfSession: true,
  },
  {
    numbers: [1665],
    explanation:
      "the server writes statements to its binary log, which READ COMMITTED rules out: set binlog_format to MIXED or ROW",
    isFatal: true,
    endsTransaction: true,
    isOfSession: true,
  },
  {
    numbers: [1205],
    explanation:
      "another session keeps one of Holdfast's tables, or a row of the buckets table, locked: SHOW PROCESSLIST or SHOW ENGINE INNODB STATUS shows it; it has locked or changes the table, is in a transaction that Holdfast did not start, or suspended",
    endsTransaction: true,
  },
  // on Galera also the refusal of a commit that conflicts with one of another node
  { numbers: [1213], explanation: "the server rolled the call back because of a deadlock", endsTransaction: true },
  {
    numbers: [1317, 1969, 3024],
    explanation: "the server cancelled the statement: it took longer than a call may, or a person cancelled it",
  },
  {
    numbers: [1040, 1203, 1226],
    explanation: "the server has no connection left for this user: raise max_connections, or use smaller pools",
  },
  { numbers: [1021, 1114, 1041], explanation: "the server has no space left: new locks are refused until it has" },
];

/** The server's number of the error; 0: it is not one of a server. */
export function readErrorNumber(error: unknown): number {
  const { errno, sqlState } = Object(error) as { readonly errno?: unknown; readonly sqlState?: unknown };
  // Node numbers its errors, too: below 0
  return typeof errno === "number" && errno > 0 && typeof sqlState === "string" ? errno : 0;
}

/** Explains an error of a call. */
export function explainError(error: unknown): unknown {
  const isExplained = error instanceof DatabaseError || error instanceof TypeError || isFatalError(error);
  if (!(error instanceof Error) || isExplained) return error;
  const { code } = error as { readonly code?: unknown };
  const message = readMessage(error);
  const known = findKnownError(error);
  const codeText = typeof code === "string" ? code : undefined;
  const tlsProblem = known === undefined ? explainTlsError(error, "ssl.ca, or ssl-ca in the url") : null;
  if (tlsProblem !== null) return new DatabaseError(`mysql: ${tlsProblem} (${message})`, undefined, true);
  if (known === undefined) return new DatabaseError(`mysql: ${message}`, codeText, false);
  return new DatabaseError(`mysql: ${known.explanation} (${message})`, codeText, known.isFatal === true);
}

/** Whether tables or procedures are not there. */
export function isMissingError(error: unknown): boolean {
  return findKnownError(error)?.explanation === MISSING_TABLES;
}

/** Whether the server only reads. */
export function isReadOnlyError(error: unknown): boolean {
  return READ_ONLY.includes(readErrorNumber(error));
}

/** Whether the user lacks a right to a table or a procedure. */
export function isRightError(error: unknown): boolean {
  return findKnownError(error)?.explanation === MISSING_RIGHT;
}

/**
 * Whether a transaction of the driver may be open on the connection after this error. A statement that the server
 * cancelled may have skipped the handler that rolls back.
 */
export function leavesTransactionOpen(error: unknown): boolean {
  return findKnownError(error)?.endsTransaction !== true;
}

/** Whether the pool closes the connection after this error. */
export function breaksConnection(error: unknown): boolean {
  return leavesTransactionOpen(error) || findKnownError(error)?.isOfSession === true;
}

function findKnownError(error: unknown): KnownError | undefined {
  const number = readErrorNumber(error);
  return KNOWN_ERRORS.find(({ numbers }) => numbers.includes(number));
}

/** The server's own message: mariadb adds the statement to that of the error. */
function readMessage(error: Error): string {
  const { sqlMessage } = error as { readonly sqlMessage?: unknown };
  if (typeof sqlMessage === "string" && sqlMessage !== "") return sqlMessage;
  if (error.message !== "") return error.message.split(/\nsql: /)[0] as string;
  return describeAttempts(error) || ((error as { readonly code?: string }).code ?? error.name);
}
