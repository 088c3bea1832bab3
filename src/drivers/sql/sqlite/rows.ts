/** The tables of one SQLite database, by prepared statements. No rule is in here: routines.ts decides. */

import { StoreRefusedError } from "../../../errors.ts";
import { ALL_PERMITS } from "../../../spi/driver.ts";
import type { SqliteDatabase, SqliteStatement, SqlRow, SqlValue } from "../clients/types.ts";
import type { ClaimRow, ListedRow, ListRequest, OwnedRow } from "../dialect.ts";
import { expandNames, quoteIdentifier, SQLITE_LAYOUT_VERSION, splitStatements, toUpperBound } from "../schema.ts";
import { NOW } from "./clock.ts";
import PURGE_ALL from "./sql/purge_all.sql";
import SCHEMA from "./sql/schema.sql";
import {
  COUNT_ROWS,
  DELETE_CLAIM,
  EXTEND_LEASE,
  FILL_BUCKETS,
  FIND_CLAIM,
  FORGET_TOTALS,
  GRANT_CLAIM,
  INSERT_CLAIM,
  LIST_KEY,
  LIST_PREFIX,
  MOVE_CLAIM,
  PURGE_TOMBSTONES,
  READ_BUCKET,
  READ_CLAIM,
  READ_CLOCK,
  READ_ENTRY,
  READ_FRONT,
  READ_HOLDERS,
  READ_IDENTITY,
  READ_LAST,
  READ_LAYOUT,
  READ_OWNED,
  READ_QUEUE,
  READ_TOMBSTONE,
  READ_TOTALS,
  READ_WAITING,
  REDUCE_TOTALS,
  SET_STATE,
  WRITE_BUCKET,
  WRITE_IDENTITY,
  WRITE_LAYOUT,
  WRITE_TOMBSTONE,
  WRITE_TOTALS,
} from "./statements.ts";

/** The identity row (identity.ts). Times are microseconds. */
export interface Identity {
  readonly file: string;
  readonly sequence: number;
  readonly graceBegins: number;
  readonly graceEnds: number;
}

/** 'o' owned, 'd' detached, 'r' revoked. */
export type RowState = "o" | "d" | "r";

/** A claim as the table has it. Times are microseconds. */
export interface StoredClaim {
  readonly id: string;
  readonly key: string;
  readonly arrival: number | bigint;
  readonly bucket: number;
  readonly permits: number;
  readonly limit: number;
  readonly state: RowState;
  readonly ttl: number;
  expires: number;
  /** 0n: it waits. */
  token: bigint;
  readonly tokenCount: number;
  readonly floor: bigint;
  readonly inbox: string;
}

/** What is in use of a key by claims that share it. Times are microseconds. */
export interface Totals {
  readonly usedPermits: number;
  /** No lease of them ends before: renewals only lengthen leases. */
  readonly firstExpires: number;
  /** When one of their leases was written last: a clock that has stepped back is behind it. */
  readonly written: number;
}

/** What a claim has to know before anything else. */
export interface Entry {
  readonly now: number;
  /** The highest token granted in the bucket. */
  readonly lastToken: bigint;
  /** How the claim ended; null: it did not, as far as is known. */
  readonly reason: string | null;
  /** Whether the claim has a row. */
  readonly isKnown: boolean;
  /** Whether the key has claims. */
  readonly isQueued: boolean;
}

/** What changes with every commit: of others, and of this connection. */
export interface DatabaseVersion {
  readonly now: number;
  readonly stamp: string;
}

const TABLES = ["layout", "buckets", "claims", "totals", "identity", "tombstones"] as const;

/** Above every text: SQLite orders bytes after all text. */
const ABOVE_ALL_KEYS = new Uint8Array([0]);

export class SqliteRows {
  readonly #database: SqliteDatabase;
  readonly #prefix: string;
  readonly #prepared = new Map<string, SqliteStatement>();

  constructor(database: SqliteDatabase, prefix: string) {
    this.#database = database;
    this.#prefix = prefix;
  }

  /** The version of the layout; null: the table is empty. @throws the library's error if there is no table */
  readLayout(): unknown {
    return this.#get(READ_LAYOUT)?.version ?? null;
  }

  /**
   * Compares the rows of all tables with each other, their indexes and the structure of the file, which no other read
   * does. @returns whether they fit together
   */
  areIntact(): boolean {
    return TABLES.every((table) => {
      const [row = {}] = this.#database.prepare(this.#expand(`pragma integrity_check({${table}})`)).all();
      return Object.values(row)[0] === "ok";
    });
  }

  createTables(bucketCount: number, layoutVersion: number): void {
    for (const statement of splitStatements(SCHEMA)) this.#database.exec(this.#expand(statement));
    this.#run(FILL_BUCKETS, bucketCount);
    this.#run(WRITE_LAYOUT, layoutVersion);
  }

  /** Deletes the expired claims that no live one of their key is behind, and the expired tombstones. */
  purgeAll(): void {
    const { now } = this.readVersion();
    const [purgeClaims, purgeTotals, purgeTombstones] = splitStatements(PURGE_ALL) as [string, string, string];
    this.#database.prepare(this.#expand(purgeClaims)).run(now, now);
    this.#database.exec(this.#expand(purgeTotals));
    this.#database.prepare(this.#expand(purgeTombstones)).run(now);
  }

  readVersion(): DatabaseVersion {
    const clock = this.#get(READ_CLOCK) as SqlRow;
    return { now: Number(clock.now), stamp: `${this.readDataVersion()} ${clock.changes}` };
  }

  readNow(): number {
    return Number(this.#get(READ_CLOCK)?.now);
  }

  /** Changes with every commit of another connection, and only then. */
  readDataVersion(): unknown {
    return this.#get("pragma data_version")?.data_version;
  }

  readEntry({ id, key, bucket }: ClaimRow): Entry {
    const { now, last_token, reason, is_known, is_queued } = this.#getOfBucket(bucket, READ_ENTRY, id, id, key, bucket);
    return {
      now: Number(now),
      lastToken: toBigInt(last_token),
      reason: reason as string | null,
      isKnown: is_known === 1,
      isQueued: is_queued === 1,
    };
  }

  /** The highest token granted in the bucket. */
  readLastToken(bucket: number): bigint {
    return toBigInt(this.#getOfBucket(bucket, READ_BUCKET, bucket).last_token);
  }

  writeLastToken(bucket: number, lastToken: bigint): void {
    this.#run(WRITE_BUCKET, lastToken, bucket);
  }

  readClaim(id: string): StoredClaim | null {
    const row = this.#get(READ_CLAIM, id);
    return row === null ? null : toStoredClaim(row);
  }

  /** Whether the key has claims. */
  hasClaims(key: string): boolean {
    return this.#get(FIND_CLAIM, key) !== null;
  }

  /** Whether the last claim of the queue waits. */
  isLastWaiting(key: string): boolean {
    const row = this.#get(READ_LAST, key);
    return row !== null && toBigInt(row.token) === 0n;
  }

  readQueue(key: string, afterArrival: number | bigint, max: number): StoredClaim[] {
    return this.#all(READ_QUEUE, key, afterArrival, max).map(toStoredClaim);
  }

  /** Like readQueue(), only those that wait. */
  readWaiting(key: string, afterArrival: number | bigint, max: number): StoredClaim[] {
    return this.#all(READ_WAITING, key, afterArrival, max).map(toStoredClaim);
  }

  /** null: no claims share the key, or they are to be counted. */
  readTotals(key: string): Totals | null {
    const row = this.#get(READ_TOTALS, key);
    if (row === null) return null;
    return { usedPermits: row.used as number, firstExpires: Number(row.first_expires), written: Number(row.written) };
  }

  writeTotals(key: string, { usedPermits, firstExpires, written }: Totals): void {
    this.#run(WRITE_TOTALS, key, usedPermits, firstExpires, written);
  }

  forgetTotals(key: string): void {
    this.#run(FORGET_TOTALS, key);
  }

  /** `token`: 0n: it waits. The totals of its key are as they were. */
  insertClaim(row: ClaimRow, token: bigint, inbox: string, now: number): void {
    const { id, key, bucket, permits, limit, ttlMs, tokenCount, floor, wait, label } = row;
    const ttl = ttlMs * 1_000;
    this.#run(
      INSERT_CLAIM,
      ...[id, key, key, bucket, permits, limit, ttl, now + ttl, token, tokenCount, floor, inbox, wait, label, now],
      token === 0n ? null : now,
    );
  }

  grantClaim(id: string, token: bigint, now: number): void {
    this.#run(GRANT_CLAIM, token, now, id);
  }

  extendLease(id: string, expires: number, inbox: string): void {
    this.#run(EXTEND_LEASE, expires, inbox, id);
  }

  setState(id: string, state: RowState, expires: number): void {
    this.#run(SET_STATE, state, expires, id);
  }

  /** What the claim was; null: there was none. It is counted out of the totals of its key. */
  deleteClaim(id: string): Pick<StoredClaim, "state" | "expires"> | null {
    const row = this.#get(DELETE_CLAIM, id);
    if (row === null) return null;
    if (toBigInt(row.token) > 0n && (row.permits as number) < ALL_PERMITS) {
      const left = this.#get(REDUCE_TOTALS, row.permits as number, row.key as string);
      if (left?.used === 0) this.forgetTotals(row.key as string);
    }
    return { state: row.state as RowState, expires: Number(row.expires) };
  }

  /** null: the table is empty. */
  readIdentity(): Identity | null {
    const [row] = this.#all(READ_IDENTITY);
    if (row === undefined) return null;
    return {
      file: String(row.file),
      sequence: Number(row.sequence),
      graceBegins: Number(row.grace_begins),
      graceEnds: Number(row.grace_ends),
    };
  }

  writeIdentity({ file, sequence, graceBegins, graceEnds }: Identity): void {
    this.#run(WRITE_IDENTITY, file, sequence, graceBegins, graceEnds);
  }

  /** The held claims of a key, in order of their tokens. */
  readHolders(key: string): StoredClaim[] {
    return this.#all(READ_HOLDERS, key).map(toStoredClaim);
  }

  /** The lowest arrivals of a key: of all, and of those that wait. */
  readFront(key: string): { readonly lowest: number; readonly lowestWaiting: number } {
    const [row] = this.#all(READ_FRONT, key) as [SqlRow];
    return {
      lowest: Number(row.lowest ?? 1),
      lowestWaiting: row.lowest_waiting === null ? Number.POSITIVE_INFINITY : Number(row.lowest_waiting),
    };
  }

  moveClaim(id: string, arrival: number): void {
    this.#run(MOVE_CLAIM, arrival, id);
  }

  readTombstone(id: string, now: number): string | null {
    return (this.#get(READ_TOMBSTONE, id, now)?.reason as string | undefined) ?? null;
  }

  /** Also deletes a few that have expired: more than one for each that is written, so they do not pile up. */
  writeTombstone(id: string, reason: "released" | "expired" | "revoked", expires: number, now: number): void {
    this.purgeTombstones(now, 4);
    this.#run(WRITE_TOMBSTONE, id, reason, expires);
  }

  purgeTombstones(now: number, max: number): void {
    this.#run(PURGE_TOMBSTONES, now, max);
  }

  /** The claims of an inbox that are neither detached nor revoked. */
  readOwned(inbox: string): OwnedRow[] {
    return this.#all(READ_OWNED, inbox).map((row) => {
      const { id, key, bucket, ttl } = toStoredClaim(row);
      return { id, key, bucket, ttlMs: ttl / 1_000 };
    });
  }

  list({ key, prefix = "", max, after }: ListRequest): ListedRow[] {
    const now = this.readNow();
    // restored claims are in front of the first arrival
    const afterArrival = after?.arrival ?? BigInt(Number.MIN_SAFE_INTEGER);
    const rows =
      key === undefined
        ? this.#all(
            LIST_PREFIX,
            ...[now, after?.key ?? prefix, toUpperBound(prefix) ?? ABOVE_ALL_KEYS, after?.key ?? "", afterArrival, max],
          )
        : this.#all(LIST_KEY, now, key, afterArrival, max);
    return rows.map((row) => toListedRow(row, now));
  }

  countRows(): Readonly<Record<"claims" | "expired_claims" | "tombstones" | "expired_tombstones", number>> {
    const now = this.readNow();
    return this.#get(COUNT_ROWS, now, now) as ReturnType<SqliteRows["countRows"]>;
  }

  #getOfBucket(bucket: number, text: string, ...values: SqlValue[]): SqlRow {
    const row = this.#get(text, ...values);
    if (row === null) {
      const remedy = "run the statements of sqliteMigration(), which insert it again";
      throw new StoreRefusedError(
        `sqlite: the row of bucket ${bucket} is missing, so the tables were changed: ${remedy}`,
      );
    }
    return row;
  }

  #get(text: string, ...values: SqlValue[]): SqlRow | null {
    return this.#prepare(text).get(...values);
  }

  #all(text: string, ...values: SqlValue[]): readonly SqlRow[] {
    return this.#prepare(text).all(...values);
  }

  #run(text: string, ...values: SqlValue[]): void {
    this.#prepare(text).run(...values);
  }

  #prepare(text: string): SqliteStatement {
    let statement = this.#prepared.get(text);
    if (statement === undefined) {
      statement = this.#database.prepare(this.#expand(text));
      this.#prepared.set(text, statement);
    }
    return statement;
  }

  #expand(text: string): string {
    const write = (name: string, word: string): string => (word === "now" ? NOW : quoteIdentifier(name));
    return expandNames(text, this.#prefix, write, SQLITE_LAYOUT_VERSION);
  }
}

function toStoredClaim(row: SqlRow): StoredClaim {
  return {
    id: row.id as string,
    key: row.key as string,
    arrival: row.arrival as number | bigint,
    bucket: row.bucket as number,
    permits: row.permits as number,
    limit: row.permit_limit as number,
    state: row.state as RowState,
    ttl: Number(row.ttl),
    expires: Number(row.expires),
    token: toBigInt(row.token),
    tokenCount: row.token_count as number,
    floor: toBigInt(row.floor),
    inbox: row.inbox as string,
  };
}

function toListedRow(row: SqlRow, now: number): ListedRow {
  const ttl = Number(row.ttl);
  return {
    id: row.id as string,
    key: row.key as string,
    arrival: String(row.arrival),
    permits: String(row.permits),
    limit: String(row.permit_limit),
    ttlMs: String(ttl / 1_000),
    tokenCount: String(row.token_count),
    floor: String(row.floor),
    wait: row.wait === 1,
    label: row.label as string,
    token: String(row.token),
    remainingMs: String(toRemainingMs(Number(row.expires), ttl, now)),
    ageMs: String(toElapsedMs(row.created, now)),
    heldMs: row.granted === null ? "" : String(toElapsedMs(row.granted, now)),
  };
}

/** What is left of a lease: never more than its ttl, also after the clock has stepped back. */
export function toRemainingMs(expires: number, ttl: number, now: number): number {
  return Math.max(Math.floor((Math.min(expires, now + ttl) - now) / 1_000), 0);
}

function toElapsedMs(since: unknown, now: number): number {
  return Math.max(Math.floor((now - Number(since)) / 1_000), 0);
}

function toBigInt(value: unknown): bigint {
  return BigInt(value as number | bigint);
}
