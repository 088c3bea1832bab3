// What needs no server of the adapters of client libraries: shapes, literals, urls.

import { describe, expect, test } from "vitest";
import { createDriver } from "../../../../src/client/driver-url.ts";
import { adaptMysqlClient, adaptPostgresClient } from "../../../../src/drivers/sql/clients/detect.ts";
import { insertMysqlValues } from "../../../../src/drivers/sql/clients/mysql-protocol.ts";
import { insertPostgresValues } from "../../../../src/drivers/sql/clients/postgres-protocol.ts";
import { adaptSqliteDatabase } from "../../../../src/drivers/sql/clients/sqlite.ts";
import {
  parseMysqlUrl,
  parsePostgresUrl,
  takePostgresTls,
  toMysql2Tls,
  toPgSettings,
  toPostgresJsSettings,
} from "../../../../src/drivers/sql/clients/url.ts";

const fn = (): void => undefined;

describe("what is no client is refused by name", () => {
  test.each([undefined, null, "postgres://host/db", 7, {}, [], fn, { query: fn }])("%o", (value) => {
    expect(() => adaptPostgresClient(value)).toThrow(/^client must be a client for PostgreSQL: .*pg.*postgres/);
    expect(() => adaptMysqlClient(value)).toThrow(/^client must be a client for MariaDB or MySQL: .*mysql2.*mariadb/);
    expect(() => adaptSqliteDatabase(value)).toThrow(/^client must be an open SQLite database .*libsql.*bun:sqlite/);
  });

  test("a client of another database", () => {
    const pool = { connect: fn, query: fn, end: fn, on: fn, listeners: () => [], totalCount: 0, options: {} };
    expect(() => adaptMysqlClient(pool)).toThrow(TypeError);
    expect(() => adaptSqliteDatabase(pool)).toThrow(TypeError);
    expect(adaptPostgresClient(pool)).toMatchObject({ library: "pg" });
  });
});

describe("SQLite libraries by shape", () => {
  const statements = { prepare: fn, exec: fn, close: fn };
  test.each([
    ["libsql", { ...statements, pragma: fn, backup: fn, aggregate: fn, syncUntil: fn, inTransaction: false }],
    ["better-sqlite3", { ...statements, pragma: fn, backup: fn, aggregate: fn, inTransaction: false }],
    ["node:sqlite", { ...statements, createSession: fn, applyChangeset: fn }],
    ["bun:sqlite", { ...statements, query: fn, fileControl: fn, inTransaction: false }],
  ])("%s", (library, handle) => {
    expect(adaptSqliteDatabase(handle).library).toBe(library);
  });

  test.each([
    ["libsql", { rawCode: 517 }, { rawCode: 1 }],
    ["better-sqlite3", { code: "SQLITE_BUSY_SNAPSHOT" }, { code: "SQLITE_FULL" }],
    ["node:sqlite", { errcode: 5 }, { errcode: 13 }],
    ["bun:sqlite", { errno: 262 }, { errno: 6 }],
  ])("%s tells a busy database from other errors", (library, busy, other) => {
    const extra = {
      libsql: { syncUntil: fn, inTransaction: false },
      "better-sqlite3": { pragma: fn, backup: fn, aggregate: fn },
      "node:sqlite": { createSession: fn, applyChangeset: fn },
      "bun:sqlite": { query: fn, fileControl: fn },
    }[library];
    const database = adaptSqliteDatabase({ ...statements, ...extra });
    expect(database.library).toBe(library);
    expect(database.isBusyError(Object.assign(new Error(), busy))).toBe(true);
    expect(database.isBusyError(Object.assign(new Error(), other))).toBe(false);
    expect(database.isBusyError(new Error("database is locked"))).toBe(false);
    expect(database.isBusyError(undefined)).toBe(false);
  });
});

test("MySQL literals replace parameters outside of quotes only", () => {
  const bytes = new Uint8Array([65, 0, 66]).subarray(1);
  expect(insertMysqlValues("f(?, ?, ?, ?, ?, ?)", ["é'", bytes, -5, 2n ** 64n - 1n, null, false])).toBe(
    "f(_utf8mb4 X'c3a927', X'0042', -5, 18446744073709551615, NULL, 0)",
  );
  expect(insertMysqlValues("f(?, ?, ?, ?)", ["k9Z", "", "a b", "a\\"])).toBe(
    "f(_utf8mb4'k9Z', _utf8mb4'', _utf8mb4 X'612062', _utf8mb4 X'615c')",
  );
  expect(insertMysqlValues(`select '?', "\\"?", \`?\`, 'it''s ?', ?`, [1])).toBe(
    `select '?', "\\"?", \`?\`, 'it''s ?', 1`,
  );
  expect(() => insertMysqlValues("select ?", [])).toThrow("1 parameters, and got 0");
  expect(() => insertMysqlValues("select '?'", [1])).toThrow("0 parameters, and got 1");
  expect(() => insertMysqlValues("select ?", [Number.NaN])).toThrow("NaN");
});

test("PostgreSQL literals replace parameters outside of quotes only", () => {
  expect(insertPostgresValues("f($1, $2, $3, $4, $2)", ["\\'", 7n, null, true])).toBe(
    "f(E'\\U0000005c\\U00000027', E'7', NULL, E'true', E'7')",
  );
  expect(insertPostgresValues("select $1, '$1', \"$1\"", [new Uint8Array([0, 255])])).toBe(
    "select E'\\\\x00ff', '$1', \"$1\"",
  );
  expect(insertPostgresValues("select $1", ["$1"])).toBe("select E'\\U000000241'");
  // in Shift_JIS the last byte of the first character and the backslash would be one
  expect(insertPostgresValues("select $1", ["Á\\' 😀 a-b"])).toBe(
    "select E'\\U000000c1\\U0000005c\\U00000027 \\U0001f600 a-b'",
  );
  expect(() => insertPostgresValues("select $1, $2", [1])).toThrow("2 parameters, and got 1");
  expect(() => insertPostgresValues("select $2", [1, 2])).toThrow(TypeError);
});

describe("urls", () => {
  test.each([
    [
      "postgres://h/db?shcema=x",
      "schema, recall, prefix, createTables, guardDataLoss, silenceWarnings, application_name",
    ],
    ["postgres+advisory://h/db?sesionMs=1", "sessionMs, maxWaitConnections, silenceWarnings, application_name"],
    ["MySQL://h/db?prefx=x", "prefix, createTables, guardDataLoss, silenceWarnings, socketPath"],
    ["mysql+advisory://h/db?sesionMs=1", "sessionMs, maxWaitConnections, silenceWarnings, socketPath"],
  ])("%s: the message names the parameters of the driver, and those of the library", async (url, names) => {
    await expect(createDriver(url)).rejects.toThrow(`(it has ${names}, `);
  });

  test.each([
    "postgres://user:s3cret@host:5432/db?sslmod=require",
    "postgres://user:s3cret@host/db?sslmode=requird",
    "postgres://user:s3cret@host:port/db",
    "postgres://user:s3cret@host/db#x",
    "postgres:user:s3cret@host/db",
    "postgres://user:s3cret@host/db?ssl=yes",
    "mysql://user:s3cret@host/db",
  ])("%s is refused for PostgreSQL, without its password", (url) => {
    const message = messageOf(() => parsePostgresUrl(url));
    expect(message).toMatch(/^TypeError: url (?:must|has no|parameter)/);
    expect(message).not.toContain("s3cret");
  });

  test.each([
    "mysql://user:s3cret@host/db?ssl=1",
    "mysql://user:s3cret@host/db?sslmode=require",
    "mysql://user:s3cret@host/%zz",
    "mysql://user:s3cret@ho st/db",
    "mysql:user:s3cret@host/db",
    "postgres://user:s3cret@host/db",
  ])("%s is refused for MariaDB, without its password", (url) => {
    const message = messageOf(() => parseMysqlUrl(url));
    expect(message).toMatch(/^TypeError: url (?:must|has no|parameter)/);
    expect(message).not.toContain("s3cret");
  });

  test("a url of MariaDB becomes settings of both libraries", () => {
    expect(parseMysqlUrl("mariadb://us%20er:p%40ss@[::1]/d%20b?ssl=true&socketPath=/run/s.sock")).toEqual({
      options: {
        host: "::1",
        port: 3306,
        user: "us er",
        password: "p@ss",
        database: "d b",
        socketPath: "/run/s.sock",
      },
      ssl: { rejectUnauthorized: true },
    });
    expect(parseMysqlUrl('mysql://h:3307?ssl={"ca":"x"}')).toEqual({
      options: { host: "h", port: 3307 },
      ssl: { ca: "x" },
    });
  });

  test("both libraries of PostgreSQL get TLS as options, and no parameter that would change it", () => {
    const url = "postgres://user@/db?host=/run/postgresql&port=5433&sslmode=no-verify&application_name=a";
    const endpoint = takePostgresTls(url, parsePostgresUrl(url));
    const ssl = { rejectUnauthorized: false, host: "/run/postgresql" };
    expect(toPostgresJsSettings(endpoint)).toEqual({
      url: "postgres://user@localhost/db?application_name=a",
      options: { host: "/run/postgresql", port: 5433, ssl },
    });
    expect(toPgSettings(endpoint)).toEqual({
      connectionString: "postgres://user@/db?host=%2Frun%2Fpostgresql&port=5433&application_name=a",
      ssl,
    });
  });

  test.each([
    ["?sslmode=prefer", true],
    ["?sslmode=require", true],
    ["?sslmode=verify-ca", true],
    ["?sslmode=verify-full", true],
    ["?ssl=true", true],
    ["?ssl=1&sslmode=no-verify", false],
    ["?sslnegotiation=direct", true],
    ["?sslmode=disable&ssl=true", undefined],
    ["?ssl=false", undefined],
    ["", undefined],
  ])("postgres://[::1]/db%s: the certificate is checked: %s", (query, isChecked) => {
    const url = `postgres://[::1]/db${query}`;
    const { ssl } = takePostgresTls(url, parsePostgresUrl(url));
    expect(ssl).toEqual(isChecked === undefined ? undefined : { rejectUnauthorized: isChecked, host: "::1" });
  });

  test("a url with uselibpqcompat stays as it is, for pg alone", () => {
    const url = "postgres://host/db?uselibpqcompat=true&sslmode=require";
    const endpoint = takePostgresTls(url, parsePostgresUrl(url));
    expect(toPgSettings(endpoint)).toEqual({ connectionString: url });
    expect(() => toPostgresJsSettings(endpoint)).toThrow('uselibpqcompat needs the package "pg"');
  });

  test("files that are missing, or do not belong together, are named", () => {
    const open = (query: string) => messageOf(() => takePostgresTls("postgres://h/d", new URLSearchParams(query)));
    expect(open("sslrootcert=/no/ca.pem")).toMatch(/url: sslrootcert names \/no\/ca\.pem, which cannot be read/);
    expect(open("sslcert=/no/cert.pem")).toMatch(/both parameters sslcert and sslkey, or neither/);
    expect(messageOf(() => parseMysqlUrl("mysql://h/d?ssl-ca=/no/ca.pem"))).toMatch(/url: ssl-ca names \/no\/ca\.pem/);
    expect(messageOf(() => parseMysqlUrl("mysql://h/d?ssl-key=/no/key.pem"))).toMatch(/both parameters ssl-cert and/);
  });

  test("mysql2 is not given an address whose certificate it would compare with another name", () => {
    const toTls = (url: string) => toMysql2Tls(parseMysqlUrl(url));
    expect(() => toTls("mysql://10.0.0.5/d?ssl=true")).toThrow(
      /cannot check a certificate for the address 10\.0\.0\.5/,
    );
    expect(toTls("mysql://db.example/d?ssl=true")).toEqual({ rejectUnauthorized: true, verifyIdentity: true });
    expect(toTls('mysql://[::1]/d?ssl={"rejectUnauthorized":false}')).toMatchObject({ rejectUnauthorized: false });
  });
});

function messageOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    return String(error);
  }
  return "nothing was thrown";
}
