/**
 * What a user writes without a library, with the same clients as our drivers: a row that is inserted and deleted, each
 * by one statement that commits by itself, and the locks of the database that end with their connection.
 */

import { randomUUID } from "node:crypto";
import type { RowDataPacket } from "mysql2/promise";
import { createPool } from "mysql2/promise";
import { Client, Pool } from "pg";
import type { LockImplementation } from "../harness/closed-loop.ts";
import { openSqliteDatabase, sqlitePath } from "./sqlite-database.ts";

const TTL_MS = 30_000;
const GET_LOCK_TIMEOUT_S = 3_600;
/** As many as callers wait in one process: each needs a connection of its own. */
const MAX_CONNECTIONS = 64;

interface HeldRow {
  readonly key: string;
  readonly owner: string;
}

/** Inserts a row, or takes one over that has expired; whether it did. */
type TakeRow = (row: HeldRow) => Promise<boolean>;

/** For a key without other callers: it does not wait. */
export async function openTableFloor(address: string): Promise<LockImplementation<HeldRow>> {
  const open = address.startsWith("postgres:")
    ? openPostgresTable
    : address.startsWith("mysql:")
      ? openMariaDbTable
      : openSqliteTable;
  const { take, remove, close } = await open(address);
  return {
    async acquire(key) {
      const row = { key, owner: randomUUID() };
      if (!(await take(row))) throw new Error("the floor's key was taken");
      return row;
    },
    release: remove,
    close,
  };
}

interface LockTable {
  readonly take: TakeRow;
  readonly remove: (row: HeldRow) => Promise<unknown>;
  readonly close: () => Promise<void>;
}

async function openPostgresTable(address: string): Promise<LockTable> {
  const pool = new Pool({ connectionString: address, max: 4 });
  await pool.query("create table if not exists floor_locks (key text primary key, owner text, expires timestamptz)");
  return {
    async take({ key, owner }) {
      const { rowCount } = await pool.query(
        `insert into floor_locks values ($1, $2, clock_timestamp() + $3 * interval '1 ms')
         on conflict (key) do update set owner = excluded.owner, expires = excluded.expires
         where floor_locks.expires < clock_timestamp()`,
        [key, owner, TTL_MS],
      );
      return rowCount === 1;
    },
    remove: ({ key, owner }) => pool.query("delete from floor_locks where key = $1 and owner = $2", [key, owner]),
    close: () => pool.end(),
  };
}

async function openMariaDbTable(address: string): Promise<LockTable> {
  const pool = createPool({ uri: address, connectionLimit: 4 });
  await pool.query(
    "create table if not exists floor_locks (lock_key varchar(255) primary key, owner varchar(64), expires datetime(6))",
  );
  return {
    async take({ key, owner }) {
      const [result] = await pool.query(
        `insert into floor_locks values (?, ?, utc_timestamp(6) + interval ? * 1000 microsecond)
         on duplicate key update owner = if(expires < utc_timestamp(6), values(owner), owner),
         expires = if(expires < utc_timestamp(6), values(expires), expires)`,
        [key, owner, TTL_MS],
      );
      return (result as { readonly affectedRows: number }).affectedRows > 0;
    },
    remove: ({ key, owner }) => pool.query("delete from floor_locks where lock_key = ? and owner = ?", [key, owner]),
    close: () => pool.end(),
  };
}

async function openSqliteTable(address: string): Promise<LockTable> {
  const database = await openSqliteDatabase(sqlitePath(address));
  database.exec("create table if not exists floor_locks (key text primary key, owner text, expires integer) strict");
  const insert = database.prepare(
    `insert into floor_locks values (?, ?, unixepoch('subsec') * 1000 + ${TTL_MS})
     on conflict (key) do update set owner = excluded.owner, expires = excluded.expires
     where expires < unixepoch('subsec') * 1000`,
  );
  const remove = database.prepare("delete from floor_locks where key = ? and owner = ?");
  return {
    take: async ({ key, owner }) => Number(insert.run(key, owner).changes) === 1,
    remove: async ({ key, owner }) => remove.run(key, owner),
    close: async () => void database.close(),
  };
}

/** A connection of its own for each caller, which waits in the database. */
export async function openAdvisoryByHand(address: string): Promise<LockImplementation> {
  return address.startsWith("postgres:") ? openPostgresAdvisory(address) : openMariaDbAdvisory(address);
}

type Unlock = () => Promise<void>;

async function openPostgresAdvisory(address: string): Promise<LockImplementation<Unlock>> {
  const pool = new Pool({ connectionString: address, max: MAX_CONNECTIONS });
  return {
    async acquire(key) {
      const client = await pool.connect();
      await client.query("select pg_advisory_lock(hashtextextended($1, 0))", [key]);
      return async () => {
        await client.query("select pg_advisory_unlock(hashtextextended($1, 0))", [key]);
        client.release();
      };
    },
    release: (unlock) => unlock(),
    close: () => pool.end(),
  };
}

async function openMariaDbAdvisory(address: string): Promise<LockImplementation<Unlock>> {
  const pool = createPool({ uri: address, connectionLimit: MAX_CONNECTIONS });
  return {
    async acquire(key) {
      const connection = await pool.getConnection();
      const [rows] = await connection.query<RowDataPacket[]>("select get_lock(?, ?) as held", [
        key,
        GET_LOCK_TIMEOUT_S,
      ]);
      if (rows[0]?.held !== 1) throw new Error("GET_LOCK gave no lock");
      return async () => {
        await connection.query("select release_lock(?)", [key]);
        connection.release();
      };
    },
    release: (unlock) => unlock(),
    close: () => pool.end(),
  };
}

/**
 * A row that two processes hand over, for the time that a hand-off takes at least: the statement of a release commits
 * to the disk and notifies; the notification is the grant, and nothing is asked after it. For two callers.
 */
export async function openNotifyFloor(address: string): Promise<LockImplementation<string>> {
  const client = new Client({ connectionString: address });
  await client.connect();
  await client.query(
    "create table if not exists floor_handoffs (key text primary key, is_held boolean not null, waiting integer not null)",
  );
  await client.query("listen floor_handoffs");
  const sender = randomUUID();
  let grant: (() => void) | null = null;
  client.on("notification", ({ payload }: { readonly payload: string }) => {
    if (payload !== sender) grant?.();
  });
  return {
    async acquire(key) {
      const granted = new Promise<void>((resolve) => {
        grant = resolve;
      });
      const { rows } = await client.query(
        `insert into floor_handoffs as row values ($1, true, 0)
         on conflict (key) do update set is_held = true, waiting = row.waiting + row.is_held::integer
         returning waiting`,
        [key],
      );
      if (rows[0]?.waiting !== 0) await granted;
      grant = null;
      return key;
    },
    release: (key) =>
      client.query(
        `with handed as (
           update floor_handoffs set is_held = waiting > 0, waiting = greatest(waiting - 1, 0) where key = $1 returning key
         )
         select pg_notify('floor_handoffs', $2) from handed`,
        [key, sender],
      ),
    close: () => client.end(),
  };
}
