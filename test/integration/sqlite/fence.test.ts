// fence() and fenceSync() in transactions of libsql, on a file that several connections share.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { createFenceTable, fence, fenceSync } from "../../../src/fencing/index.ts";
import type { FenceDatabase, TestTransaction } from "../../support/fence-scenarios.ts";
import { createTestLock, describeFenceArguments } from "../../support/fence-scenarios.ts";

type Rows = Readonly<Record<string, unknown>>[];

let folder: string;
let pool: Database.Database;
let database: FenceDatabase;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "holdfast-fence-"));
  pool = open();
  pool.exec(
    "pragma journal_mode = wal; create table data (seq integer primary key, who text); create table log (n int)",
  );
  database = {
    pool,
    levels: ["immediate", "deferred"],
    isSnapshot: () => true,
    begin: async (level) => begin(open(), level),
    query: async (text) => query(pool, text),
  };
});

afterAll(() => {
  pool.close();
  rmSync(folder, { recursive: true, force: true });
});

describeFenceArguments(() => database, ["a'b\\", '"; drop table data; --', "ключ 😀", "$1 ?"]);

describe.each(["immediate", "deferred"])("%s transactions", (level) => {
  test("a holder that comes after a later one is refused", async () => {
    await startAfresh();
    await commit(level, 20, "later");
    await expect(commit(level, 10, "earlier")).rejects.toMatchObject({ code: "LOCK_STALE", keys: ["k"] });
    await commit(level, 20, "again");
    await commit(level, 30, "next");
    expect(await database.query("select who from data")).toEqual([{ who: "later" }, { who: "again" }, { who: "next" }]);
  });

  test("readers pass each other, and order themselves with writers", async () => {
    await startAfresh();
    await commit(level, 5, "writer");
    await commit(level, 20, "reader", "shared");
    await commit(level, 10, "reader", "shared");
    await expect(commit(level, 15, "writer")).rejects.toMatchObject({ code: "LOCK_STALE" });
    await commit(level, 30, "writer");
    await expect(commit(level, 29, "reader", "shared")).rejects.toMatchObject({ code: "LOCK_STALE" });
  });

  test("while another connection writes, or has written since, the error says to run it again", async () => {
    await startAfresh();
    const first = await database.begin("immediate");
    await fence(first.handle, createTestLock(10));
    if (level === "immediate") await expect(database.begin(level)).rejects.toThrow(/locked/);
    else {
      const second = await database.begin(level);
      await second.query("select * from data");
      await expect(fence(second.handle, createTestLock(20))).rejects.toMatchObject({
        code: "LOCK_FENCE_CONFLICT",
        retryable: true,
      });
      await first.commit();
      await expect(fence(second.handle, createTestLock(20))).rejects.toMatchObject({ code: "LOCK_FENCE_CONFLICT" });
      await second.rollback();
    }
    await first.commit();
    await commit(level, 20, "second");
  });
});

test("fenceSync() works inside the transaction functions of a library", async () => {
  await startAfresh();
  const transact = (token: number, mode: "exclusive" | "shared"): void =>
    pool.transaction(() => {
      fenceSync(pool, createTestLock(token, mode));
      pool.exec("insert into data (who) values ('sync')");
    })();
  transact(10, "exclusive");
  transact(20, "shared");
  expect(() => transact(15, "exclusive")).toThrow(expect.objectContaining({ code: "LOCK_STALE" }));
  expect(() => fenceSync(pool, createTestLock(30))).toThrow(/inside a transaction/);
  expect(() => fenceSync({}, createTestLock(30))).toThrow(/SQLite database/);
  expect(await database.query("select count(*) as n from data")).toEqual([{ n: 2 }]);
});

test("a library that does not show its transactions is asked by beginning one", async () => {
  await startAfresh();
  // node:sqlite before Node 22.16
  const silent = {
    prepare: (text: string) => pool.prepare(text),
    exec: (text: string) => pool.exec(text),
    close: () => undefined,
    createSession: () => undefined,
    applyChangeset: () => undefined,
  };
  await expect(fence(silent, createTestLock(10))).rejects.toThrow(/inside a transaction/);
  expect(() => fenceSync(silent, createTestLock(10))).toThrow(/inside a transaction/);
  expect(pool.inTransaction).toBe(false);
  pool.exec("begin");
  await fence(silent, createTestLock(10));
  fenceSync(silent, createTestLock(10));
  expect(pool.inTransaction).toBe(true);
  pool.exec("commit");
  expect(await database.query("select token from holdfast_1_fences")).toEqual([{ token: 10 }]);
});

async function startAfresh(): Promise<void> {
  await createFenceTable(pool);
  pool.exec("delete from holdfast_1_fences; delete from data");
}

async function commit(
  level: string,
  token: number,
  who: string,
  mode: "exclusive" | "shared" = "exclusive",
): Promise<void> {
  const transaction = await database.begin(level);
  try {
    await fence(transaction.handle, createTestLock(token, mode));
    await transaction.query(`insert into data (who) values ('${who}')`);
  } catch (error) {
    await transaction.rollback();
    throw error;
  }
  await transaction.commit();
}

function open(): Database.Database {
  return new Database(join(folder, "db"));
}

function begin(connection: Database.Database, level: string): TestTransaction {
  onTestFinished(() => void connection.close());
  connection.exec(`begin ${level}`);
  const end = async (text: string): Promise<void> => {
    if (connection.inTransaction) connection.exec(text);
  };
  return {
    handle: connection,
    query: async (text) => query(connection, text),
    isBlocked: async () => false,
    commit: () => end("commit"),
    rollback: () => end("rollback"),
  };
}

function query(connection: Database.Database, text: string): Rows {
  const statement = connection.prepare(text);
  if (/^select/.test(text)) return (statement.all() as Rows).map((row) => ({ ...row }));
  statement.run();
  return [];
}
