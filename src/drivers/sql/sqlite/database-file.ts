/** The file of a database: created for its owner only, and watched for being deleted or replaced. */

import type { BigIntStats } from "node:fs";
import { closeSync, openSync, readFileSync, realpathSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { StoreRefusedError } from "../../../errors.ts";
import type { SqliteDatabase } from "../clients/types.ts";
import type { LocationFault } from "./location.ts";
import { explainSecondName, findLocationFault, hasSecondName, verifyLocation } from "./location.ts";
import { readPragma } from "./settings.ts";

/**
 * Creates the file if it does not exist. It contains the secret ids of claims, so only its owner may read it; SQLite
 * gives its companion files the same mode. An existing file keeps its mode, which may admit a group of users.
 * @throws StoreRefusedError if it cannot be a database
 */
export function ensureDatabaseFile(path: string): void {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat?.isDirectory()) throw new StoreRefusedError(`sqlite: ${path} is a folder: name a file`);
  if (stat !== undefined) return;
  try {
    // never opened if it exists: closing it would end the locks that this process has on it
    closeSync(openSync(path, "wx", 0o600));
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === "EEXIST") return;
    const problem =
      code === "ENOENT" ? `its folder ${dirname(path)} does not exist: create it` : `it cannot be created (${code})`;
    throw new StoreRefusedError(`sqlite: ${path}: ${problem}`, { cause });
  }
}

/**
 * The files beside a database as the first connection of this process found them, and the connections that use them.
 */
interface Companions {
  /** null: one was missing. */
  readonly identity: string | null;
  readonly users: Set<DatabaseFile>;
}

/**
 * By the identity of the database. SQLite opens the -shm file once for all connections of a process: a connection that
 * is opened later uses that one, whatever is at the path by then. So only the first one's look at the path tells what
 * they have open.
 *
 * A connection whose files are lost stays here, and open, for the life of the process: some libraries close a
 * connection at a time of their own, and as the last one of the file it would write back what it sees, over what others
 * have written since.
 */
const COMPANIONS = new Map<string, Companions>();

/** Which file a connection has open. */
export class DatabaseFile {
  readonly path: string;
  /** SQLite follows a link at the end of a path, and keeps the other files beside the one that it leads to. */
  readonly #realPath: string;
  readonly #identity: string | null;
  readonly #database: SqliteDatabase;
  /** null: none has been seen yet, or the connection is not in WAL mode. */
  #companions: Companions | null = null;
  /** Whether verify() has found that the connection's file is not at this path any more. */
  isReplaced = false;
  /** Whether verify() has found that the -wal or -shm file is not. */
  #isLost = false;

  /**
   * @param path of a file that the connection has opened already
   * @throws StoreRefusedError if its locks could have two holders where it is, or are lost
   */
  constructor(path: string, database: SqliteDatabase) {
    this.path = path;
    this.#database = database;
    this.#identity = identify(readStat(path));
    this.#realPath = this.#identity === null ? path : realpathSync(path);
    verifyLocation(this.#realPath);
    // before it is read: what is lost may be unreadable, too
    if (COMPANIONS.has(this.identity)) this.verify();
  }

  /** The file of a user's handle; null: its database is in memory. */
  static of(database: SqliteDatabase): DatabaseFile | null {
    const main = database
      .prepare("pragma database_list")
      .all()
      .find(({ name }) => name === "main");
    return main === undefined || main.file === "" || main.file === null
      ? null
      : new DatabaseFile(String(main.file), database);
  }

  /**
   * A deleted file stays usable for those that have it open, while others create a new one: two holders. The same is
   * true of the -wal and -shm files beside it, which are open once the database was read.
   * @throws StoreRefusedError if the path has no file any more, or another one; Error if the file has got a second
   * name, until that is removed
   */
  verify(): void {
    const stat = readStat(this.path);
    if (this.#identity === null || identify(stat) !== this.#identity) {
      this.isReplaced = true;
      throw new StoreRefusedError(
        `sqlite: ${this.path} was deleted or replaced while it was open, and its locks are lost: open it again`,
      );
    }
    this.#isLost ||= !this.#hasItsCompanions();
    this.throwIfLost();
    // a process that has opened one name before the other was made is told nothing by open()
    if (!hasSecondName(stat)) return;
    const { message, hint } = explainSecondName(this.path);
    throw Object.assign(new Error(`sqlite: ${message}: ${hint}`), { code: "SQLITE" });
  }

  /**
   * Without its own -wal or -shm file the connection sees what no other process sees. SQLite cannot get out of this:
   * another connection of this process would share the deleted -shm file.
   */
  throwIfLost(): void {
    if (!this.#isLost) return;
    throw new StoreRefusedError(
      `sqlite: the -wal or -shm file of ${this.path} was deleted or replaced while it was open, and the locks of this process are lost: ` +
        "restart the process",
    );
  }

  /** Whether throwIfLost() throws. */
  get isLost(): boolean {
    return this.#isLost;
  }

  /** Whether the path still leads to the connection's file. */
  isAtPath(): boolean {
    return identify(readStat(this.path)) === this.#identity && this.#hasItsCompanions();
  }

  /** The connection is not used any more: it may be closed unless isLost is true. */
  close(): void {
    if (!this.#isLost) this.#leaveCompanions();
  }

  #hasItsCompanions(): boolean {
    if (this.#companions === null) {
      if (!COMPANIONS.has(this.identity) && !this.#sharesMemory()) return true;
      this.#companions = this.#joinCompanions();
    }
    const { identity } = this.#companions;
    if (identity !== null && identity === this.#identifyCompanions()) return true;
    try {
      if (this.#sharesMemory()) return false;
    } catch {
      return false;
    }
    // the owner of the handle has left WAL mode
    this.#leaveCompanions();
    return true;
  }

  /** Whether the connection is in WAL mode, and not alone. A user's handle may leave that mode. */
  #sharesMemory(): boolean {
    const isWal = readPragma(this.#database, "journal_mode") === "wal";
    return isWal && readPragma(this.#database, "locking_mode") === "normal";
  }

  #joinCompanions(): Companions {
    const key = this.identity;
    let companions = COMPANIONS.get(key);
    if (companions === undefined) {
      const isOpen = !isMappedAfterDeletion(`${this.#realPath}-shm`);
      companions = { identity: isOpen ? this.#identifyCompanions() : null, users: new Set() };
      COMPANIONS.set(key, companions);
    }
    companions.users.add(this);
    return companions;
  }

  #leaveCompanions(): void {
    const users = this.#companions?.users;
    users?.delete(this);
    if (users?.size === 0) COMPANIONS.delete(this.identity);
    this.#companions = null;
  }

  /** null: one is missing. */
  #identifyCompanions(): string | null {
    const identities = ["-wal", "-shm"].map((suffix) => identify(readStat(this.#realPath + suffix)));
    return identities.includes(null) ? null : identities.join(", ");
  }

  /** Tells the file from any other, a copy included. */
  get identity(): string {
    return this.#identity ?? "";
  }

  /** The bits of its mode that admit other users; 0 if it is unknown. */
  readForeignAccess(): number {
    return (statSync(this.path, { throwIfNoEntry: false })?.mode ?? 0) & 0o077;
  }

  /** Why its locks could have two holders where it is now; null: nothing is known. */
  findFault(): LocationFault | null {
    return findLocationFault(this.#realPath);
  }
}

function readStat(path: string): BigIntStats | undefined {
  return statSync(path, { throwIfNoEntry: false, bigint: true });
}

function identify(stat: BigIntStats | undefined): string | null {
  // file systems use the number of a deleted file again
  return stat === undefined ? null : `${stat.dev} ${stat.ino} ${stat.birthtimeNs}`;
}

/**
 * Whether a connection of this process, perhaps one that was opened elsewhere, has this -shm file open though it was
 * deleted. Only Linux tells.
 */
function isMappedAfterDeletion(path: string): boolean {
  let mappings: readonly string[];
  try {
    mappings = readFileSync("/proc/self/maps", "utf8").split("\n");
  } catch {
    return false;
  }
  const isMapped = (name: string): boolean => mappings.some((line) => line.endsWith(` ${name}`));
  // after the database was replaced too, the old mapping stands beside the new one
  return isMapped(`${path} (deleted)`) && !isMapped(path);
}
