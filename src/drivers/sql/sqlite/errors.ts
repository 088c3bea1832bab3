/** Explains errors of SQLite: what is wrong and what to do. */

import { isFatalError, StoreRefusedError } from "../../../errors.ts";

/** What the libraries tell of an error: a result code by name or number. */
interface SqliteErrorLike {
  readonly message?: string;
  /** libsql, better-sqlite3, bun:sqlite: "SQLITE_BUSY_SNAPSHOT"; node:sqlite: "ERR_SQLITE_ERROR". */
  readonly code?: unknown;
  readonly errcode?: unknown;
  readonly errno?: unknown;
  readonly rawCode?: unknown;
}

interface KnownError {
  /** SQLite's primary result codes: https://www.sqlite.org/rescode.html */
  readonly code: number;
  readonly name: string;
  readonly message: string;
  /** A retry is useless. */
  readonly isFatal: boolean;
}

const DAMAGED =
  "the database file is damaged: stop all processes that use it, delete it, and let Holdfast create it again";

/** The errors that users meet; all others are passed on with their own message. */
const KNOWN_ERRORS: readonly KnownError[] = [
  { code: 3, name: "PERM", message: "this user may not open the file: check its owner and mode", isFatal: true },
  {
    code: 5,
    name: "BUSY",
    message: "another process has been writing to the database for too long: is it stopped inside a transaction?",
    isFatal: false,
  },
  {
    code: 8,
    name: "READONLY",
    message: "the file, its folder or the handle is read-only, but locks are written: make them writable",
    isFatal: true,
  },
  {
    code: 10,
    name: "IOERR",
    message: "the disk reported an error: check it, and that the file is not on a network file system",
    isFatal: false,
  },
  {
    code: 11,
    name: "CORRUPT",
    message: DAMAGED,
    isFatal: true,
  },
  {
    code: 13,
    name: "FULL",
    message:
      "the disk is full: nothing is granted or renewed until there is space; held locks are lost with their leases",
    isFatal: false,
  },
  {
    code: 14,
    name: "CANTOPEN",
    message: "the file cannot be opened: check that its folder exists, and the limit on open files (ulimit -n)",
    isFatal: true,
  },
  { code: 23, name: "AUTH", message: "the handle has an authorizer that refuses Holdfast's statements", isFatal: true },
  {
    code: 26,
    name: "NOTADB",
    message: "the file is not an SQLite database, or it is encrypted: use another file",
    isFatal: true,
  },
];

const MISSING_TABLES =
  "Holdfast's tables are missing: let open() create them (option createTables), or run the statements of sqliteMigration()";

/** An error with SQLite's name of it in brackets, which its documentation explains. */
export function explainSqliteError(error: unknown): Error {
  if (!(error instanceof Error)) return new Error(`sqlite: ${String(error)}`);
  // one of the driver has said what is wrong, also without the prefix: no library is installed
  if (isFatalError(error) || /^sqlite: /.test(error.message)) return error;
  if (/within a transaction/.test(error.message)) {
    const problem = "the handle is inside a transaction of its owner: end it, or pass a path or a handle of its own";
    return new Error(`sqlite: ${problem}`, { cause: error });
  }
  if (isMissingTable(error)) {
    return Object.assign(new Error(`sqlite: ${MISSING_TABLES} (${error.message})`, { cause: error }), readCode(error));
  }
  const known = KNOWN_ERRORS.find((each) => hasCode(error, each));
  if (known === undefined)
    return Object.assign(new Error(`sqlite: ${error.message}`, { cause: error }), readCode(error));
  const message = `sqlite: ${known.message} (${known.name})`;
  if (known.isFatal) return new StoreRefusedError(message, { cause: error });
  return Object.assign(new Error(message, { cause: error }), readCode(error));
}

/** The message for tables whose contents contradict each other: that of SQLite's own error for a damaged file. */
export function explainDamage(): string {
  return `sqlite: ${DAMAGED} (CORRUPT)`;
}

/** Whether the error says that there is no such table. */
export function isMissingTable(error: unknown): boolean {
  return error instanceof Error && /no such table/.test(error.message);
}

function hasCode(error: SqliteErrorLike, { code, name }: KnownError): boolean {
  const numbers = [error.errcode, error.errno, error.rawCode];
  if (numbers.some((number) => typeof number === "number" && (number & 0xff) === code)) return true;
  return typeof error.code === "string" && new RegExp(`^SQLITE_${name}(_|$)`).test(error.code);
}

/** The CLI treats an error with a code as the answer of the store. */
function readCode({ code }: SqliteErrorLike): { readonly code: string } {
  return { code: typeof code === "string" ? code : "SQLITE" };
}
