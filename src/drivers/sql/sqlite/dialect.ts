/**
 * The dialect of SQLite: a transaction of this process for each verb, in one file that the processes of one machine
 * use. Its clock is in clock.ts.
 */

import { StoreRefusedError } from "../../../errors.ts";
import type { Check } from "../../../spi/driver.ts";
import { systemClock } from "../../../util/clock.ts";
import { randomId } from "../../../util/ids.ts";
import { resolveMaxTtlMs } from "../../data-loss-guard.ts";
import { resolveWarn } from "../../warnings.ts";
import type { CallKind } from "../call-kinds.ts";
import { loadSqliteDatabase } from "../clients/load-sqlite.ts";
import { adaptSqliteDatabase } from "../clients/sqlite.ts";
import type { SqliteDatabase } from "../clients/types.ts";
import type {
  ClaimRow,
  Dialect,
  DialectEvents,
  DialectSession,
  ListedRow,
  ListRequest,
  OwnedRow,
  ReleaseReply,
  ReleaseRow,
  RestoreRow,
  RevokeRow,
} from "../dialect.ts";
import { DEFAULT_COMMAND_TIMEOUT_MS } from "../options.ts";
import { BUCKET_COUNT, DEFAULT_PREFIX, explainLayout, SQLITE_LAYOUT_VERSION, toName } from "../schema.ts";
import type { UnsentCall } from "../unsent-claims.ts";
import { UnsentClaims } from "../unsent-claims.ts";
import { DatabaseFile, ensureDatabaseFile } from "./database-file.ts";
import { diagnose } from "./diagnostics.ts";
import { explainDamage, explainSqliteError, isMissingTable } from "./errors.ts";
import { IdentityCheck } from "./identity.ts";
import type { SqliteOptions } from "./options.ts";
import type { ClaimReply, Pushes } from "./routines.ts";
import { Routines } from "./routines.ts";
import { SqliteRows } from "./rows.ts";
import { readPragma, readVersion } from "./settings.ts";
import { FlushNeeded, Transactions } from "./transactions.ts";
import { WaitCache } from "./wait-cache.ts";

/** The first version with unixepoch('subsec'). */
const MIN_VERSION: readonly [number, number] = [3, 42];

/** A recheck of an unchanged database costs some microseconds. */
const RECHECK_INTERVALS = { nextMs: 5, shortMs: 5, firstMs: 1_000, longMs: 50 };

/** The database of a dialect: an absolute path, or the user's handle. */
export type DatabaseSource =
  | { readonly kind: "path"; readonly path: string }
  | { readonly kind: "handle"; readonly handle: object };

export function createSqliteDialect(source: DatabaseSource, options: SqliteOptions): Dialect {
  return {
    name: "sqlite",
    durability: "restart",
    recheckIntervals: RECHECK_INTERVALS,
    async open(events) {
      const session = new SqliteSession(source, options, events);
      await session.open();
      return session;
    },
  };
}

/** An open connection and what works on it. Replaced as a whole if the file was replaced. */
interface OpenDatabase {
  readonly database: SqliteDatabase;
  readonly file: DatabaseFile | null;
  readonly rows: SqliteRows;
  readonly routines: Routines;
  readonly transactions: Transactions;
  readonly waits: WaitCache;
  /** null: guardDataLoss is off. */
  readonly identity: IdentityCheck | null;
}

class SqliteSession implements DialectSession {
  readonly hasPush = false;
  readonly pushesRecalls = false;
  readonly #source: DatabaseSource;
  readonly #options: SqliteOptions;
  readonly #events: DialectEvents;
  readonly #warn: (warning: string) => void;
  /** Identifies the claims of this session. */
  readonly #inbox = randomId();
  #open!: OpenDatabase;
  #reopening: Promise<void> | null = null;
  readonly #unsentClaims = new UnsentClaims<readonly string[]>();
  #isClosed = false;

  constructor(source: DatabaseSource, options: SqliteOptions, events: DialectEvents) {
    this.#source = source;
    this.#options = options;
    this.#events = events;
    this.#warn = resolveWarn(options.warn);
  }

  async open(): Promise<void> {
    this.#open = await openDatabase(this.#source, this.#options, this.#inbox);
  }

  async claim(row: ClaimRow): Promise<string> {
    const [reply] = await this.#unsentClaims.claim(row.id, (onSent) => this.#startClaim(row, onSent));
    return reply as string;
  }

  #startClaim(row: ClaimRow, onSent: () => void): UnsentCall<readonly string[]> {
    let isWithdrawn = false;
    const claim = ({ routines }: OpenDatabase, pushes: Pushes): readonly ClaimReply[] => {
      if (isWithdrawn) return [{ reply: "n" }];
      onSent();
      return [routines.claim(row, pushes)];
    };
    return {
      result: this.#writeReplies([row.id], "claim", claim, row.bucket),
      withdraw() {
        isWithdrawn = true;
      },
    };
  }

  renew(rows: readonly ClaimRow[]): Promise<readonly string[]> {
    return this.#replyNoneIfLost(rows, () => this.#renew(rows));
  }

  async #renew(rows: readonly ClaimRow[]): Promise<readonly string[]> {
    const replies = this.#replyWithoutWriting(rows);
    const rest = rows.filter((_, index) => replies[index] === null);
    if (rest.length === 0) return replies as string[];
    const ids = rest.map(({ id }) => id);
    const written = await this.#writeReplies(ids, "renewal", ({ routines }, pushes) => routines.renew(rest, pushes));
    let next = 0;
    return replies.map((reply) => reply ?? (written[next++] as string));
  }

  release(rows: readonly ReleaseRow[]): Promise<ReleaseReply> {
    return this.#unsentClaims.release(rows, (sentRows) => this.#release(sentRows));
  }

  async #release(rows: readonly ReleaseRow[]): Promise<ReleaseReply> {
    for (const { id } of rows) this.#open.waits.delete(id);
    // guardDataLoss recognizes an older copy of the file by the number of its commits, so none may be undone
    const { identity } = this.#open;
    const release = ({ routines }: OpenDatabase, isFlushed: boolean): ReleaseReply => {
      const reply = routines.release(rows);
      if (!isFlushed && reply.mustFlush) throw new FlushNeeded();
      return reply;
    };
    return this.#write(release, "release", identity !== null);
  }

  detach(rows: readonly ClaimRow[], remainingMs: number | null): Promise<readonly boolean[]> {
    return this.#write(({ routines }) => routines.detach(rows, remainingMs));
  }

  async revoke(rows: readonly RevokeRow[]): Promise<readonly boolean[]> {
    const { flags, pushes } = await this.#write(({ routines }) => {
      const pushes: Pushes = [];
      return { flags: routines.revoke(rows, pushes), pushes };
    });
    this.#push(pushes);
    return flags;
  }

  async list(request: ListRequest): Promise<readonly ListedRow[]> {
    return this.#try(({ rows }) => rows.list(request));
  }

  async readOwned(): Promise<readonly OwnedRow[]> {
    return this.#try(({ rows }) => rows.readOwned(this.#inbox));
  }

  checkDataLoss(): Promise<number> {
    return this.#write(({ routines }) => routines.checkDataLoss());
  }

  restore(rows: readonly RestoreRow[]): Promise<readonly string[]> {
    const ids = rows.map(({ id }) => id);
    return this.#replyNoneIfLost(rows, () =>
      // no release of these claims may overtake it
      this.#writeReplies(ids, "release", ({ routines }, pushes) => routines.restore(rows, pushes)),
    );
  }

  async diagnose(): Promise<readonly Check[]> {
    return this.#try(({ database, rows, file }) => diagnose(database, rows, file));
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#closeDatabase();
  }

  /** Answers what needs no write: from memory, then from what is read. null: a write is needed. */
  #replyWithoutWriting(rows: readonly ClaimRow[]): (string | null)[] {
    return this.#try(({ rows: tables, routines, transactions, waits, file }) => {
      // a write finds out what has become of the file, so that holders learn of it, or restore their claims, soon
      if (file?.isAtPath() === false) return rows.map(() => null);
      const version = tables.readVersion();
      const replies = rows.map(({ id }) => waits.reply(id, version));
      if (!replies.includes(null)) return replies;
      const read = transactions.read(() => {
        const { now, stamp } = tables.readVersion();
        return rows.map((row, index) => {
          if (replies[index] !== null) return replies[index] as string;
          const found = routines.peek(row, now);
          waits.set(row.id, found?.wait, stamp);
          return found?.reply ?? null;
        });
      });
      return read ?? replies;
    });
  }

  /**
   * If the database is lost, renewals answer "none", so that the client tells its holders at once. With a handle of the
   * user they reject.
   */
  async #replyNoneIfLost(
    rows: readonly { readonly id: string }[],
    reply: () => Promise<readonly string[]>,
  ): Promise<readonly string[]> {
    try {
      return await reply();
    } catch (error) {
      const { file } = this.#open;
      if (file?.isLost !== true || this.#source.kind === "handle" || this.#isClosed) throw error;
      this.#warn((error as Error).message);
      return rows.map(() => "n");
    }
  }

  /** A write that answers for these claims. */
  async #writeReplies(
    ids: readonly string[],
    kind: CallKind,
    work: (open: OpenDatabase, pushes: Pushes) => readonly ClaimReply[],
    bucket: number | null = null,
  ): Promise<string[]> {
    const { replies, pushes, stamp, waits } = await this.#write(
      (open) => {
        const pushes: Pushes = [];
        const replies = work(open, pushes);
        const isWaiting = replies.some(({ wait }) => wait !== undefined);
        return { replies, pushes, stamp: isWaiting ? open.rows.readVersion().stamp : "", waits: open.waits };
      },
      kind,
      true,
      bucket,
    );
    for (const [index, { wait }] of replies.entries()) waits.set(ids[index] as string, wait, stamp);
    this.#push(pushes);
    return replies.map(({ reply }) => reply);
  }

  async #write<T>(
    work: (open: OpenDatabase, isFlushed: boolean) => T,
    kind: CallKind = "renewal",
    mustFlush: boolean = true,
    bucket: number | null = null,
  ): Promise<T> {
    const open = this.#open;
    try {
      return await runWrite(open, work, kind, mustFlush, bucket);
    } catch (error) {
      // a handle can be opened again only by its owner
      if (open.file?.isReplaced !== true || this.#source.kind === "handle" || this.#isClosed) throw error;
    }
    await this.#reopen(open);
    return runWrite(this.#open, work, kind, mustFlush, bucket);
  }

  /**
   * Goes on with the file that is at the path now. Its claims are not those of the old one, so holders learn of the
   * loss.
   */
  #reopen(stale: OpenDatabase): Promise<void> {
    if (this.#open !== stale) return Promise.resolve();
    this.#reopening ??= this.#replaceDatabase().finally(() => {
      this.#reopening = null;
    });
    return this.#reopening;
  }

  async #replaceDatabase(): Promise<void> {
    const { path } = this.#open.file as DatabaseFile;
    this.#warn(`sqlite: ${path} was deleted or replaced while it was open: its locks are lost`);
    const fresh = await openDatabase(this.#source, this.#options, this.#inbox);
    this.#closeDatabase();
    this.#open = fresh;
    if (this.#isClosed) this.#closeDatabase();
    else this.#events.missed();
  }

  #closeDatabase(): void {
    const { database, file, transactions } = this.#open;
    transactions.close();
    const isOwned = this.#source.kind === "path";
    if (isOwned) noteLoss(file);
    file?.close();
    if (isOwned && file?.isLost !== true) database.close();
  }

  /** After this call, since the driver must not be called back from within one. */
  #push(pushes: Pushes): void {
    if (pushes.length === 0) return;
    queueMicrotask(() => {
      for (const push of pushes) this.#events.pushed(push, true);
    });
  }

  #try<T>(work: (open: OpenDatabase) => T): T {
    if (this.#isClosed) throw new Error("sqlite: the driver is closed");
    try {
      this.#open.file?.throwIfLost();
      return work(this.#open);
    } catch (error) {
      throw explainSqliteError(error);
    }
  }
}

/** Updates file.isLost. */
function noteLoss(file: DatabaseFile | null): void {
  try {
    file?.verify();
  } catch {
    // the caller reads isLost
  }
}

/** Runs `work` in a write transaction. */
async function runWrite<T>(
  open: OpenDatabase,
  work: (open: OpenDatabase, isFlushed: boolean) => T,
  kind: CallKind,
  mustFlush: boolean,
  bucket: number | null,
): Promise<T> {
  let onCommit = (): void => undefined;
  const result = await open.transactions.write(
    (isFlushed) => {
      const worked = work(open, isFlushed);
      if (open.identity !== null) onCommit = open.identity.createCommitListener();
      return worked;
    },
    kind,
    mustFlush,
    bucket,
  );
  onCommit();
  return result;
}

async function openDatabase(source: DatabaseSource, options: SqliteOptions, inbox: string): Promise<OpenDatabase> {
  const isOwned = source.kind === "path";
  const path = source.kind === "path" ? source.path : null;
  if (path !== null) ensureDatabaseFile(path);
  let database: SqliteDatabase | null = null;
  let file: DatabaseFile | null = null;
  try {
    database = source.kind === "path" ? await loadSqliteDatabase(source.path) : adaptSqliteDatabase(source.handle);
    file = path === null ? DatabaseFile.of(database) : new DatabaseFile(path, database);
    verifyDatabase(database);
    if (isOwned) configure(database);
    const { prefix = DEFAULT_PREFIX, clock = systemClock, commandTimeoutMs = DEFAULT_COMMAND_TIMEOUT_MS } = options;
    const rows = new SqliteRows(database, prefix);
    const transactions = new Transactions(database, {
      clock,
      isOwned,
      timeoutMs: commandTimeoutMs,
      verify: () => file?.verify(),
      explain: explainSqliteError,
    });
    await prepareTables(rows, transactions, prefix, options.createTables ?? true);
    file?.verify();
    const maxTtlMs = resolveMaxTtlMs(options.guardDataLoss);
    const identity = maxTtlMs === null ? null : new IdentityCheck(rows, file?.identity ?? "in memory", maxTtlMs);
    const routines = new Routines(rows, inbox, identity);
    return { database, file, rows, transactions, routines, waits: new WaitCache(), identity };
  } catch (error) {
    file?.close();
    if (isOwned && file?.isLost !== true) database?.close();
    throw nameFile(explainSqliteError(error), path);
  }
}

/** Settings of a connection of our own; those of a user's handle stay as they are. */
function configure(database: SqliteDatabase): void {
  // waiting inside SQLite would block the event loop
  database.exec("pragma busy_timeout = 0");
  if (readPragma(database, "journal_mode") !== "wal") database.exec("pragma journal_mode = wal");
  // with less, a loss of power undoes commits: a lock would be granted twice
  database.exec("pragma synchronous = full");
}

function verifyDatabase(database: SqliteDatabase): void {
  const version = readVersion(database);
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (major < MIN_VERSION[0] || (major === MIN_VERSION[0] && minor < MIN_VERSION[1])) {
    const needed = `SQLite ${MIN_VERSION.join(".")} or newer is needed, for its clock in milliseconds`;
    throw new StoreRefusedError(`sqlite: ${database.library} has SQLite ${version}: ${needed}`);
  }
  // the order of UTF-16 is not that of lists
  if (readPragma(database, "encoding") !== "UTF-8")
    throw new StoreRefusedError("sqlite: the database's encoding is not UTF-8: use a database of its own for locks");
}

async function prepareTables(
  rows: SqliteRows,
  transactions: Transactions,
  prefix: string,
  mayCreate: boolean,
): Promise<void> {
  if (!hasTables(rows)) {
    const table = toName("layout", prefix);
    if (!mayCreate)
      throw new StoreRefusedError(
        `sqlite: there is no table ${table}: run the statements of sqliteMigration(), or set createTables`,
      );
    await transactions.write(() => rows.createTables(BUCKET_COUNT, SQLITE_LAYOUT_VERSION));
  }
  const version = rows.readLayout();
  if (version !== SQLITE_LAYOUT_VERSION)
    throw new StoreRefusedError(explainLayout("sqlite", toName("layout", prefix), version, SQLITE_LAYOUT_VERSION));
  if (!rows.areIntact()) throw new StoreRefusedError(explainDamage());
  const { expired_claims: claims, expired_tombstones: tombstones } = rows.countRows();
  if (claims + tombstones > 0) await transactions.write(() => rows.purgeAll());
}

/** Without them one creates all; so another layout's tables must not be missed. */
function hasTables(rows: SqliteRows): boolean {
  try {
    return rows.readLayout() !== null;
  } catch (error) {
    if (isMissingTable(error)) return false;
    throw error;
  }
}

function nameFile(error: Error, path: string | null): Error {
  if (path !== null && !error.message.includes(path))
    error.message = error.message.replace(/^sqlite: /, `sqlite ${path}: `);
  return error;
}
