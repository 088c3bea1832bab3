/** Checks what of an SQLite database matters to locks: for `holdfast doctor` and for warnings in open(). */

import type { Check } from "../../../spi/driver.ts";
import type { SqliteDatabase } from "../clients/types.ts";
import type { DatabaseFile } from "./database-file.ts";
import type { SqliteWarning } from "./options.ts";
import type { SqliteRows } from "./rows.ts";
import { readPragma, readVersion } from "./settings.ts";

interface SqliteCheck extends Check {
  readonly name: SqliteWarning | "version" | "rows";
}

/** The values of `pragma synchronous`. */
const SYNCHRONOUS_NAMES: readonly string[] = ["OFF", "NORMAL", "FULL", "EXTRA"];
const FULL = 2;
const EXTRA = 3;

/** `file`: null for a database in memory. */
export function diagnose(database: SqliteDatabase, rows: SqliteRows, file: DatabaseFile | null): SqliteCheck[] {
  const checks = [
    checkVersion(database),
    checkFile(file),
    checkMode(file),
    file === null ? null : checkJournal(database),
    file === null ? null : checkSynchronous(database),
    checkRows(rows),
  ];
  return checks.filter((check) => check !== null);
}

function checkVersion(database: SqliteDatabase): SqliteCheck {
  return { status: "ok", name: "version", message: `SQLite ${readVersion(database)} by ${database.library}` };
}

function checkFile(file: DatabaseFile | null): SqliteCheck {
  const name = "file";
  if (file === null) {
    const hint = "only users of this one handle exclude each other: pass the path of a file";
    return { status: "warn", name, message: "the database is in memory, and its locks end with the process", hint };
  }
  const fault = file.findFault();
  return fault === null ? { status: "ok", name, message: file.path } : { status: "fail", name, ...fault };
}

function checkMode(file: DatabaseFile | null): SqliteCheck | null {
  const name = "mode";
  if (file === null || process.platform === "win32") return null;
  if ((file.readForeignAccess() & 0o007) === 0)
    return { status: "ok", name, message: "only its owner or group may use the file" };
  const message = "every user of this machine may read the file, and with it the ids that give a right to locks";
  return { status: "warn", name, message, hint: `chmod o= ${file.path} and the files beside it` };
}

function checkJournal(database: SqliteDatabase): SqliteCheck {
  const name = "journal";
  const mode = String(readPragma(database, "journal_mode"));
  if (mode === "wal")
    return { status: "ok", name, message: "journal_mode is wal: readers and the writer do not block" };
  if (mode === "off" || mode === "memory") {
    const hint = "set journal_mode to wal";
    return { status: "warn", name, message: `journal_mode is ${mode}: a crash may damage the database`, hint };
  }
  const hint = "set journal_mode to wal";
  return { status: "warn", name, message: `journal_mode is ${mode}: readers and the writer block each other`, hint };
}

function checkSynchronous(database: SqliteDatabase): SqliteCheck {
  const name = "durability";
  const level = Number(readPragma(database, "synchronous"));
  const message = `synchronous is ${SYNCHRONOUS_NAMES[level] ?? level}`;
  // deleting its journal commits a transaction, and only EXTRA waits until the deletion is on the disk
  const needed = readPragma(database, "journal_mode") === "delete" ? EXTRA : FULL;
  if (level >= needed) return { status: "ok", name, message: `${message}: grants survive a loss of power` };
  const hint = needed === FULL ? "set synchronous to FULL" : "set journal_mode to wal, or synchronous to EXTRA";
  return { status: "warn", name, message: `${message}: a loss of power may undo the last grants`, hint };
}

function checkRows(rows: SqliteRows): SqliteCheck {
  const { claims, expired_claims: expiredClaims, tombstones } = rows.countRows();
  const message = `${claims} claims, ${expiredClaims} of them expired, and ${tombstones} tombstones`;
  return { status: "ok", name: "rows", message };
}
