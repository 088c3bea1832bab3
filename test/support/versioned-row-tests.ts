/** What optimistic() must do with a row of a table, whichever library and database it is. */

import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { VersionedStore } from "../../src/optimistic/index.ts";
import { optimistic, stop, versionedRow } from "../../src/optimistic/index.ts";
import type { TestDatabase } from "./stores/sql-database.ts";

/** A row of the table that createStockTable() makes. */
export interface Stock {
  readonly id: number;
  readonly name: string;
  readonly left_count: number;
  readonly version: number;
}

/** A client of the database under test. */
export interface RowClient {
  readonly handle: unknown;
  /** How many callers may use the handle at once. Default: 8. */
  readonly callers?: number;
  close(): unknown;
}

type Query = TestDatabase["query"];

/** Bounds that a busy row does not reach. */
export const PATIENT = { attempts: 1_000, minDelay: 1, maxDelay: 20 } as const;

export const takeOne = ({ left_count }: Stock): Partial<Stock> => ({ left_count: left_count - 1 });

export async function createStockTable(query: Query): Promise<void> {
  await query("drop table if exists t_stock");
  await query(
    "create table t_stock (id int primary key, name varchar(80) not null, left_count int not null, version bigint not null)",
  );
  await query("insert into t_stock values (1, 'one', 100, 0), (2, 'two', 0, 7)");
}

export function stockRow(handle: unknown, id: number = 1): VersionedStore<Stock, Partial<Stock>> {
  return versionedRow<Stock>(handle, { table: "t_stock", key: { id } });
}

/** Registers the tests. `query` reads and writes the tables without the library under test. */
export function testVersionedRow(name: string, open: () => RowClient | Promise<RowClient>, query: Query): void {
  describe(name, () => {
    let client: RowClient;
    beforeEach(async () => {
      await createStockTable(query);
      client = await open();
    });
    afterEach(async () => {
      await client.close();
    });
    const readStock = async (id: number): Promise<readonly number[]> => {
      const [row] = await query(`select left_count, version from t_stock where id = ${id}`);
      return [Number(row?.left_count), Number(row?.version)];
    };

    test("many callers at once: each change is made once, on the newest version", async () => {
      const length = client.callers ?? 8;
      const callers = Array.from({ length }, async () => {
        for (let turn = 0; turn < 40 / length; turn++) await optimistic(stockRow(client.handle), takeOne, PATIENT);
      });
      await Promise.all(callers);
      expect(await readStock(1)).toEqual([60, 40]);
    });

    test("a version that moves between reading and writing: retried, and counted", async () => {
      let moves = 2;
      const result = await optimistic(
        stockRow(client.handle),
        async (row) => {
          if (moves-- > 0) await query("update t_stock set version = version + 1, left_count = 50 where id = 1");
          return takeOne(row);
        },
        PATIENT,
      );
      expect(result).toMatchObject({ status: "written", retries: 2, before: { left_count: 50 } });
      expect(await readStock(1)).toEqual([49, 3]);
    });

    test("a change that writes into its row overwrites nobody", async () => {
      let moves = 1;
      const result = await optimistic(
        stockRow(client.handle),
        async (row: { -readonly [Column in keyof Stock]: Stock[Column] }) => {
          if (moves-- > 0) await query("update t_stock set version = version + 1, left_count = 50 where id = 1");
          row.left_count--;
          row.version++;
          return { left_count: row.left_count };
        },
        PATIENT,
      );
      expect(result).toMatchObject({ status: "written", retries: 1 });
      expect(await readStock(1)).toEqual([49, 2]);
    });

    test("values that are the same as before are written, and move the version", async () => {
      const result = await optimistic(stockRow(client.handle), ({ left_count }) => ({ left_count }));
      expect(result).toMatchObject({ status: "written", retries: 0 });
      expect(await readStock(1)).toEqual([100, 1]);
    });

    test("stop() leaves the row as it is", async () => {
      const result = await optimistic(stockRow(client.handle, 2), ({ left_count }) =>
        left_count === 0 ? stop("sold out") : { left_count: left_count - 1 },
      );
      expect(result).toMatchObject({ status: "stopped", value: "sold out", retries: 0 });
      expect(await readStock(2)).toEqual([0, 7]);
    });

    test("no such row, and a row that is deleted before the write", async () => {
      await expect(optimistic(stockRow(client.handle, 9), takeOne)).rejects.toMatchObject({
        code: "LOCK_ROW_GONE",
        attempts: 1,
      });
      const deleted = optimistic(stockRow(client.handle), async (row) => {
        await query("delete from t_stock where id = 1");
        return takeOne(row);
      });
      await expect(deleted).rejects.toMatchObject({ code: "LOCK_ROW_GONE", attempts: 2 });
    });

    test("values are parameters, and odd names are quoted", async () => {
      const quote = (await isMysql(query)) ? "`" : '"';
      const odd = (column: string): string => `${quote}${column}${quote}`;
      await query(`drop table if exists ${odd("odd Table-1")}`);
      await query(
        `create table ${odd("odd Table-1")} (${odd("the key")} varchar(80) primary key, ${odd("order")} varchar(80), ${odd("Version")} bigint not null)`,
      );
      const nasty = `a'b"c\`d\\e $1 ? -- ; drop table t_stock; ${odd("x")} ü`;
      await query(
        `insert into ${odd("odd Table-1")} values ('${nasty.replaceAll("'", "''").replaceAll("\\", (await isMysql(query)) ? "\\\\" : "\\")}', '', 3)`,
      );
      const row = versionedRow<{ "the key": string; order: string; Version: number }>(client.handle, {
        table: "odd Table-1",
        key: { "the key": nasty },
        version: "Version",
        columns: ["order"],
      });
      const result = await optimistic(row, () => ({ order: nasty }));
      expect(result).toMatchObject({ status: "written", before: { order: "" } });
      const rows = await query(`select * from ${odd("odd Table-1")}`);
      expect(rows.map((each) => [each["the key"], each.order, Number(each.Version)])).toEqual([[nasty, nasty, 4]]);
      expect(await readStock(1)).toEqual([100, 0]);
    });

    test("a version that would be rounded is compared exactly, or refused", async () => {
      await query("update t_stock set version = 9007199254740993 where id = 1");
      const written = optimistic(stockRow(client.handle), takeOne).then(
        ({ status }) => status,
        // Drizzle wraps the error of @libsql/client, which rounds no integer
        ({ message, cause }: Error) => (cause instanceof Error ? cause.message : message),
      );
      expect(await written).toMatch(
        /^written$|must contain an integer that is not rounded|cannot be safely represented as a JavaScript number/,
      );
      const [row] = await query("select cast(version as char(20)) as version from t_stock where id = 1");
      const isWritten = (await written) === "written";
      expect(String(row?.version).trim()).toBe(isWritten ? "9007199254740994" : "9007199254740993");
    });
  });
}

async function isMysql(query: Query): Promise<boolean> {
  const answer = await query("select @@version_comment as comment").catch(() => []);
  return answer.length > 0;
}
