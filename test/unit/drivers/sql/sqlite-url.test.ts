import { resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { createDriver } from "../../../../src/client/driver-url.ts";
import { parseSqliteUrl } from "../../../../src/drivers/sql/sqlite/from-url.ts";

describe("a url of SQLite", () => {
  test.each([
    ["sqlite:locks.db", resolve("locks.db")],
    ["sqlite:./locks.db", resolve("locks.db")],
    ["sqlite:../locks.db", resolve("../locks.db")],
    ["sqlite:/var/locks.db", "/var/locks.db"],
    ["sqlite:///var/locks.db", "/var/locks.db"],
    ["sqlite:/a%20b%23c%3Fd.db", "/a b#c?d.db"],
    ["sqlite:http%3A//host/a.db", resolve("http:/host/a.db")],
  ])("%s names %s", (url, path) => {
    expect(parseSqliteUrl(url)).toEqual({ path });
  });

  test("may have a prefix", () => {
    expect(parseSqliteUrl("sqlite:/a.db?prefix=mine")).toEqual({ path: "/a.db", prefix: "mine" });
  });

  test.each([
    ["sqlite:", "url must have the path of a file"],
    ["sqlite:///", "url must have the path of a file"],
    ["sqlite://host/a.db", "url must have the path of a file"],
    ["sqlite:/a.db#b", "with %23 for #"],
    ["SQLite:/a.db?prefx=a", 'url has no parameter "prefx" for sqlite: (it has prefix, guardDataLoss)'],
    ["sqlite:/a.db?prefix=A", "prefix must be 1 to 32 lower-case letters"],
    ["sqlite:/a%zz.db", "url must have a valid percent-encoding"],
    ["sqlite::memory:", "memory() only"],
  ])("%s is refused", async (url, problem) => {
    await expect(createDriver(url)).rejects.toThrow(problem);
    await expect(createDriver(url)).rejects.toThrow(TypeError);
  });

  test("takes no credential", async () => {
    await expect(createDriver("sqlite:/a.db", { credential: "secret" })).rejects.toThrow(
      "credential must not be set: sqlite: does not use it",
    );
  });
});
