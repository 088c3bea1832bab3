// fence() in transactions of pg, on a real server, at each isolation level.

import pg from "pg";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { createFenceTable, fence, fenceMigration } from "../../../src/fencing/index.ts";
import { connect } from "../../../src/index.ts";
import type { FenceDatabase, TestTransaction } from "../../support/fence-scenarios.ts";
import {
  createShortLock,
  createTestLock,
  describeFence,
  describeFenceArguments,
  expectLockRenewedDuringFence,
} from "../../support/fence-scenarios.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

interface TestClient {
  query(text: string, values?: readonly unknown[]): Promise<{ readonly rows: Readonly<Record<string, unknown>>[] }>;
  on(event: "error" | "end", listener: () => void): void;
  release(isBroken?: boolean): void;
}

interface TestPool extends TestClient {
  on(event: "error" | "end", listener: () => void): void;
  on(event: "connect", listener: (client: TestClient) => void): void;
  connect(): Promise<TestClient>;
  end(): Promise<void>;
}

const LEVELS = ["read committed", "repeatable read", "serializable"];

withPostgres((server) => {
  let database: FenceDatabase;
  let pool: TestPool;
  let url: string;
  let urlOf: (user: string, password: string) => string;

  beforeAll(async () => {
    const fresh = await server().freshDatabase();
    ({ url, urlOf } = fresh);
    pool = new pg.Pool({ connectionString: url, max: 8 }) as unknown as TestPool;
    pool.on("error", () => undefined);
    // once for each connection: the transactions of many tests use the same ones
    pool.on("connect", (client) => client.on("error", () => undefined));
    await pool.query("create table data (seq serial primary key, who text)");
    await pool.query("create table log (seq serial primary key, token bigint, mode text)");
    await pool.query("create table other (n int)");
    database = {
      pool,
      levels: LEVELS,
      isSnapshot: (level) => level !== "read committed",
      begin: (level) => begin(pool, level),
      query: async (text) => (await pool.query(text)).rows,
    };
  });

  afterAll(() => pool?.end());

  describeFence(() => database, LEVELS);

  test("a fenced transaction keeps neither the renewal of its own lock nor other claims waiting", async () => {
    await expectLockRenewedDuringFence(await connect(`${url}?silenceWarnings=durability`), database);
  });

  describeFenceArguments(() => database, ["a'b\\", '"; drop table data; --', "ключ 😀", "$1 ?"]);

  test("a session with another character set fences the same key", async () => {
    const key = "\u00e9\u65e5";
    const [first, second] = [await begin(pool, "read committed"), await begin(pool, "read committed")];
    await fence(first.handle, createTestLock(20, "exclusive", [key]));
    await first.commit();
    await second.query("set local client_encoding = latin1");
    await expect(fence(second.handle, createTestLock(10, "exclusive", [key]))).rejects.toMatchObject({
      code: "LOCK_STALE",
    });
    await second.rollback();
  });

  test.each(LEVELS)(
    "%s: a holder that stands still in its transaction blocks the next one for the rest of its lease",
    async (level) => {
      await database.query("delete from holdfast_1_fences");
      await database.query("delete from data");
      const stopped = await database.begin(level);
      await fence(stopped.handle, createShortLock(10, 400));
      await stopped.query("insert into data (who) values ('stopped')");
      const startedAt = performance.now();
      const next = await database.begin(level);
      await fence(next.handle, createTestLock(20)).catch(async (error: { code: string }) => {
        expect([error.code, level]).not.toEqual(["LOCK_FENCE_CONFLICT", "read committed"]);
        throw error;
      });
      await next.commit();
      expect(performance.now() - startedAt).toBeLessThan(5_000);
      await expect(stopped.commit()).rejects.toThrow();
      await stopped.rollback();
      expect(await database.query("select * from data")).toEqual([]);
    },
  );

  test.each([
    ["0", "1min"],
    ["2h", "1min"],
    ["500ms", "500ms"],
    ["59s", "59s"],
  ])("an idle time-out of %s becomes %s until the transaction ends", async (own, expected) => {
    const client = await pool.connect();
    onTestFinished(() => client.release(true));
    const read = async (): Promise<unknown> =>
      (await client.query("select current_setting('idle_in_transaction_session_timeout') as value")).rows[0]?.value;
    await client.query(`set idle_in_transaction_session_timeout = '${own}'`);
    await client.query("begin");
    await fence(client, createTestLock(100), { idleTimeout: false });
    expect(await read()).toBe(own);
    await fence(client, createTestLock(100));
    expect(await read()).toBe(expected);
    await client.query("commit");
    expect(await read()).toBe(own);
  });

  test.each([2 ** 31, 30 * 86_400_000, Number.POSITIVE_INFINITY])(
    "a lease with %d ms left, longer than any time-out, is fenced",
    async (remainingMs) => {
      const client = await pool.connect();
      onTestFinished(() => client.release(true));
      await client.query("begin");
      await fence(client, createShortLock(150, remainingMs));
      await client.query("commit");
    },
  );

  test("a session that the database ends for its idle transaction is an error of the next call, and no unhandled one", async () => {
    await createFenceTable(pool);
    const own = new pg.Pool({ connectionString: url, max: 1 }) as unknown as TestPool;
    onTestFinished(() => own.end());
    const client = await own.connect();
    onTestFinished(() => client.release(true));
    const ended = new Promise<void>((resolve) => client.on("end", resolve));
    await client.query("begin");
    await fence(client, createShortLock(300, 100));
    await fence(client, createShortLock(300, 100));
    await ended;
    await expect(client.query("commit")).rejects.toThrow(/not queryable|terminat/);
  });

  test("a client outside a transaction is refused, also if only the database knows", async () => {
    const client = await pool.connect();
    await expect(fence(client, createTestLock(200))).rejects.toThrow(/inside a transaction/);
    const silent = hideStatus(client);
    await expect(fence(silent, createTestLock(200))).rejects.toThrow(/inside a transaction/);
    await client.query("begin");
    await fence(silent, createTestLock(200));
    await fence(silent, createTestLock(201, "shared"));
    await client.query("commit");
    client.release();
  });

  test("the table may be in a schema of its own, made by a migration", async () => {
    await pool.query('create schema "the locks"');
    await pool.query(fenceMigration("postgres", { schema: "the locks", prefix: "app" }));
    await Promise.all([1, 2, 3].map(() => createFenceTable(pool, { prefix: "raced" })));
    const transaction = await database.begin("read committed");
    await fence(transaction.handle, createTestLock(7), { schema: "the locks", prefix: "app" });
    await transaction.commit();
    expect(await database.query('select lock_key, token::text from "the locks".app_1_fences')).toEqual([
      { lock_key: "k", token: "7" },
    ]);
  });

  test("the rights to select, insert and update are enough", async () => {
    await pool.query("create role fencer login password 'pw'");
    await pool.query("grant select, insert, update on holdfast_1_fences to fencer");
    const client = new pg.Client({ connectionString: urlOf("fencer", "pw") }) as unknown as TestClient & {
      connect(): Promise<void>;
      end(): Promise<void>;
    };
    await client.connect();
    for (const [token, mode] of [
      [300, "exclusive"],
      [301, "shared"],
      [302, "exclusive"],
    ] as const) {
      await client.query("begin");
      await fence(client, createTestLock(token, mode));
      await client.query("commit");
    }
    await client.end();
  });

  async function begin(from: TestPool, level: string): Promise<TestTransaction> {
    const client = await from.connect();
    await client.query(`begin isolation level ${level}`);
    const { rows } = await client.query("select pg_backend_pid() as pid");
    // without a snapshot: the level is set anew, and the first statement is the next one
    await client.query("rollback");
    await client.query(`begin isolation level ${level}`);
    let isReleased = false;
    const end = async (text: string): Promise<void> => {
      if (isReleased) return;
      isReleased = true;
      try {
        await client.query(text);
        client.release();
      } catch (error) {
        client.release(true);
        if (text === "commit") throw error;
      }
    };
    onTestFinished(() => end("rollback"));
    return {
      handle: client,
      query: async (text) => (await client.query(text)).rows,
      isBlocked: async () =>
        (await from.query("select from pg_stat_activity where pid = $1 and wait_event_type = 'Lock'", [rows[0]?.pid]))
          .rows.length > 0,
      commit: () => end("commit"),
      rollback: () => end("rollback"),
    };
  }
});

/** As a library that does not know whether a transaction is open. */
function hideStatus(client: TestClient): unknown {
  return new Proxy(client, {
    get: (target, name) => (name === "getTransactionStatus" ? undefined : Reflect.get(target, name, target)),
  });
}
