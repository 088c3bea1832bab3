import { describe, expect, test } from "vitest";
import { StoreRefusedError } from "../../../src/errors.ts";
import { FenceConflictError, toFenceError } from "../../../src/fencing/errors.ts";
import type { SqlDialect } from "../../../src/fencing/handles.ts";
import { classifyDatabaseError } from "../../../src/optimistic/database-errors.ts";

/** Errors as libraries and query builders throw them. */
const wrap = (details: object, ...names: readonly string[]): Error =>
  names.reduce(
    (inner, name) => Object.assign(new Error("failed"), { [name]: inner }),
    Object.assign(new Error("failed"), details),
  );

const CONFLICTS: readonly (readonly [string, SqlDialect, Error])[] = [
  ["pg", "postgres", wrap({ code: "40001" })],
  ["Drizzle over pg", "postgres", wrap({ code: "40P01" }, "cause")],
  ["TypeORM over pg", "postgres", wrap({ code: "40001" }, "driverError")],
  ["Prisma on PostgreSQL", "postgres", Object.assign(new Error("failed"), { code: "P2010", meta: { code: "40001" } })],
  [
    "Prisma with an adapter",
    "postgres",
    wrap({ originalCode: "40001", code: "P2034" }, "cause", "driverAdapterError", "meta"),
  ],
  ["mysql2", "mysql", wrap({ code: "ER_LOCK_DEADLOCK", errno: 1213 })],
  ["Knex over mariadb", "mysql", wrap({ code: "ER_CHECKREAD", errno: 1020 }, "cause")],
  ["Prisma on MariaDB, which has the number as text", "mysql", wrap({ code: "P2010", originalCode: "1213" }, "meta")],
  ["node:sqlite", "sqlite", wrap({ code: "ERR_SQLITE_ERROR", errcode: 5 })],
  ["libsql, with a subcode", "sqlite", wrap({ code: "SQLITE_BUSY_SNAPSHOT", rawCode: 517 })],
  ["better-sqlite3 in TypeORM", "sqlite", wrap({ code: "SQLITE_BUSY" }, "driverError")],
];

describe("a conflict that another transaction caused", () => {
  test.each(CONFLICTS)("as %s says it", (_, dialect, error) => {
    expect(toFenceError(error, dialect, ["k"], "fences")).toBeInstanceOf(FenceConflictError);
    expect(classifyDatabaseError(dialect, error)).toBe("moved");
  });
});

test.each([
  ["postgres", { code: "42P01" }],
  ["mysql", { errno: 1146 }],
  ["sqlite", { message: "no such table: fences" }],
] as const)("a missing table of fence() on %s", (dialect, details) => {
  expect(toFenceError(wrap(details, "cause"), dialect, ["k"], "fences")).toBeInstanceOf(StoreRefusedError);
});

test.each([
  ["a broken socket", { code: "ECONNRESET", errno: -104 }, "unknown"],
  ["a broken pipe, whose code looks like one of PostgreSQL", { code: "EPIPE" }, "unknown"],
  ["no connection", { code: "ECONNREFUSED" }, "failed"],
  ["Prisma's own code", { code: "P2010" }, "unknown"],
  ["a violated constraint", { code: "23505" }, "failed"],
] as const)("%s is no conflict", (_, details, failure) => {
  const error = wrap(details, "cause");
  expect(toFenceError(error, "postgres", ["k"], "fences")).toBe(error);
  expect(classifyDatabaseError("postgres", error)).toBe(failure);
});
