/** The file of a database: created for its owner only, and watched for being deleted or replaced. */

import type { BigIntStats } from "node:fs";
import { closeSync, openSync, realpathSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { FatalDriverError } from "../../../errors.ts";
import type { SqliteDatabase } from "../clients/types.ts";
import type { LocationFault } from "./location.ts";
import { explainSecondName, findLocationFault, hasSecondName, verifyLocation } from "./location.ts";

/**
 * Creates the file if it does not exist. It contains the secret ids of claims, so only its owner may read it; SQLite gives
 * its companion files the same mode. An existing file keeps its mode, which may admit a group of users.
 * @throws FatalDriverError if it cannot be a database
 */
export function ensureDatabaseFile(path: string): void {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat?.isDirectory()) throw new FatalDriverError(`sqlite: ${path} is a folder: name a file`);
  if (stat !== undefined) return;
  try {
    // never opened if it exists: closing it would end the locks that this process has on it
    closeSync(openSync(path, "wx", 0o600));
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === "EEXIST") return;
    const problem =
      code === "ENOENT" ? `its folder ${dirname(path)} does not exist: create it` : `it cannot be created (${code})`;
    throw new FatalDriverError(`sqlite: ${path}: ${problem}`, { cause });
  }
}

/** Which file a connection has open. */
export class DatabaseFile {
  readonly path: string;
  /** SQLite follows a link at the end of a path, and keeps the other files beside the one that it leads to. */
  readonly #realPath: string;
  readonly #identity: string | null;
  /** The file that contains the locks of the WAL mode; null: not seen yet. Unset for a handle, which may leave that mode. */
  #sharedMemory: string | null | undefined;
  /** Whether verify() has found that the connection's file is not at this path any more. */
  isReplaced = false;

  /**
   * @param path of a file that the connection has opened already
   * @throws FatalDriverError if its locks could have two holders where it is
   */
  constructor(path: string, isOwned: boolean) {
    this.path = path;
    this.#identity = identify(readStat(path));
    this.#realPath = this.#identity === null ? path : realpathSync(path);
    verifyLocation(this.#realPath);
    this.#sharedMemory = isOwned ? null : undefined;
  }

  /** The file of a user's handle; null: its database is in memory. */
  static of(database: SqliteDatabase): DatabaseFile | null {
    const main = database
      .prepare("pragma database_list")
      .all()
      .find(({ name }) => name === "main");
    return main === undefined || main.file === "" || main.file === null
      ? null
      : new DatabaseFile(String(main.file), false);
  }

  /**
   * A deleted file stays usable for those that have it open, while others create a new one: two holders. The same is true of
   * the -shm file beside it. Call it inside a transaction, in which both are open.
   * @throws FatalDriverError if the path has no file any more, or another one; Error if the file has got a second name, until
   * that is removed
   */
  verify(): void {
    const stat = readStat(this.path);
    if (!this.#isAtPath(stat)) {
      this.isReplaced = true;
      throw new FatalDriverError(
        `sqlite: ${this.path} was deleted or replaced while it was open, and its locks are lost: open it again`,
      );
    }
    // a process that has opened one name before the other was made is told nothing by open()
    if (!hasSecondName(stat)) return;
    const { message, hint } = explainSecondName(this.path);
    throw Object.assign(new Error(`sqlite: ${message}: ${hint}`), { code: "SQLITE" });
  }

  /** Whether the path still leads to the connection's file. */
  isAtPath(): boolean {
    return this.#isAtPath(readStat(this.path));
  }

  #isAtPath(stat: BigIntStats | undefined): boolean {
    return identify(stat) === this.#identity && this.#hasSameSharedMemory();
  }

  #hasSameSharedMemory(): boolean {
    if (this.#sharedMemory === undefined) return true;
    const identity = identify(readStat(`${this.#realPath}-shm`));
    this.#sharedMemory ??= identity;
    return identity === this.#sharedMemory;
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
