// The adapters of the libraries for SQLite, against real files.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import { describe, expect, onTestFinished, test } from "vitest";
import { adaptSqliteDatabase } from "../../../src/drivers/sql/clients/sqlite.ts";
import type { SqliteDatabase } from "../../../src/drivers/sql/clients/types.ts";
import { lockWithLibraries } from "../../support/installed-package.ts";
import type { SqliteLibrary } from "../../support/stores/sqlite-libraries.ts";
import { listOtherLibraries } from "../../support/stores/sqlite-libraries.ts";

const LIBSQL: SqliteLibrary = { name: "libsql", open: (path) => new Database(path) };

function temporaryFile(): string {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-sqlite-clients-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return join(folder, "locks.db");
}

const OTHER_LIBRARIES = listOtherLibraries();
const HAS_NODE_SQLITE = OTHER_LIBRARIES.some(({ name }) => name === "node:sqlite");
const FOLDERS: Readonly<Record<string, string>> = {
  libsql: "node_modules/libsql",
  "better-sqlite3": "test/interop/better-sqlite3/node_modules/better-sqlite3",
};

describe.concurrent("by url", () => {
  const installable = [LIBSQL, ...OTHER_LIBRARIES].filter(({ name }) => name in FOLDERS);

  // where there is node:sqlite it comes first
  test.skipIf(HAS_NODE_SQLITE).each(installable)("$name is used where it is the only library", async ({ name }) => {
    expect(await lockWithLibraries("sqlite:locks.db", [String(FOLDERS[name])])).toBe("locked");
  });

  test("without a library node:sqlite is used, or the error says what to install", async () => {
    expect(await lockWithLibraries("sqlite:locks.db", ["node_modules/pg"])).toMatch(
      HAS_NODE_SQLITE
        ? /^locked$/
        : /^LOCK_STORE_REFUSED sqlite urls need the package "libsql" or "better-sqlite3", neither of which is installed: npm install libsql, or use Node 22.13 or newer$/,
    );
  });
});

describe.each([LIBSQL, ...OTHER_LIBRARIES])("$name", ({ name, open: openHandle }) => {
  const open = (path: string): SqliteDatabase => {
    const handle = openHandle(path);
    onTestFinished(() => void handle.close());
    const database = adaptSqliteDatabase(handle);
    expect(database.library).toBe(name);
    return database;
  };

  test("every kind of value is stored and returned exactly, with its type", () => {
    const database = open(temporaryFile());
    database.exec("create table t (big integer, bytes blob, word text, yes any, none any, small any)");
    const bytes = new Uint8Array([9, 0, 255]).subarray(1);
    expect(
      database.prepare("insert into t values (?, ?, ?, ?, ?, ?)").run(2n ** 63n - 1n, bytes, "x'é", true, null, 7),
    ).toBe(1);
    const [row] = database
      .prepare("select *, typeof(yes) as yes_type, typeof(small) as small_type, 7 / ? as half from t")
      .all(2);
    // a Buffer is one, too
    const { bytes: stored, ...rest } = row as { readonly bytes: Uint8Array };
    expect(stored).toBeInstanceOf(Uint8Array);
    expect({ ...rest, bytes: [...stored] }).toEqual({
      big: 2n ** 63n - 1n,
      bytes: [0, 255],
      word: "x'é",
      yes: 1,
      none: null,
      small: 7,
      yes_type: "integer",
      small_type: "integer",
      half: 3,
    });
  });

  test("a single null or list of bytes is a parameter, not a set of named ones", () => {
    const database = open(temporaryFile());
    expect(database.prepare("select ? as v").all(null)).toEqual([{ v: null }]);
    expect(database.prepare("select hex(?) as v").all(new Uint8Array([65]))).toEqual([{ v: "41" }]);
  });

  test("a database that another connection writes is busy at once", () => {
    const path = temporaryFile();
    const [one, other] = [open(path), open(path)];
    other.exec("pragma busy_timeout = 0");
    one.exec("create table t (n integer)");
    one.exec("begin immediate");
    expect([one.isInTransaction(), other.isInTransaction()]).toEqual([true, false]);
    const start = performance.now();
    const error = catchError(() => other.exec("begin immediate"));
    expect(performance.now() - start).toBeLessThan(1_000);
    expect(other.isBusyError(error)).toBe(true);
    expect(other.isBusyError(catchError(() => other.exec("nonsense")))).toBe(false);
    one.exec("commit");
    other.exec("begin immediate");
    other.exec("rollback");
  });
});

test("a handle whose integers the user reads as numbers returns them exactly, and keeps its setting", () => {
  const own = new Database(temporaryFile());
  onTestFinished(() => void own.close());
  own.defaultSafeIntegers(false);
  const database = adaptSqliteDatabase(own);
  expect(database.prepare("select 9007199254740993 as v").all()).toEqual([{ v: 9_007_199_254_740_993n }]);
  expect(own.prepare("select 1 as v").all()).toEqual([{ v: 1 }]);
});

function catchError(action: () => void): unknown {
  try {
    action();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
}
