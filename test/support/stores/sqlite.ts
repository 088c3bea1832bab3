/** Files of SQLite for tests. */

import { accessSync, constants, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import { afterAll } from "vitest";
import { sqlite } from "../../../src/drivers/sql/sqlite/driver.ts";
import { NO_EVENTS } from "../driver-events.ts";
import { findSqliteViolations } from "./sql-inspector.ts";

/** Memory, where a commit need not wait for a disk. Only Linux has it. */
const MEMORY_FOLDER = "/dev/shm";

/** A function that returns the path of a new database; all are deleted after the tests of the file. */
export function useSqliteFiles(): () => string {
  const folder = mkdtempSync(join(isWritable(MEMORY_FOLDER) ? MEMORY_FOLDER : tmpdir(), "holdfast-sqlite-"));
  afterAll(() => rmSync(folder, { recursive: true }));
  let count = 0;
  return () => join(folder, `${count++}.db`);
}

function isWritable(folder: string): boolean {
  try {
    accessSync(folder, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** Runs a statement and closes the connection. Integers come as bigint. */
export async function queryOnce(
  database: InstanceType<typeof Database>,
  text: string,
): Promise<readonly Readonly<Record<string, unknown>>[]> {
  try {
    const statement = database.prepare(text);
    if (!/^(?:select|pragma)/.test(text)) {
      statement.run();
      return [];
    }
    return statement.safeIntegers(true).all() as Record<string, unknown>[];
  } finally {
    database.close();
  }
}

/** Reads what is wrong in the tables of a file, by a connection of its own. */
export class SqliteInspector {
  readonly #path: string;
  #database: InstanceType<typeof Database> | null = null;

  constructor(path: string) {
    this.#path = path;
  }

  query(text: string): Readonly<Record<string, unknown>>[] {
    this.#database ??= this.#open();
    return this.#database.prepare(text).all() as Record<string, unknown>[];
  }

  #open(): InstanceType<typeof Database> {
    const database = new Database(this.#path);
    // with a rollback journal a writer keeps readers out
    database.exec("pragma busy_timeout = 2000");
    return database;
  }

  /** Empty if there are no tables yet. */
  async findViolations(options: Parameters<typeof findSqliteViolations>[1] = {}): Promise<string[]> {
    // opening it would create it, with another mode
    if (!existsSync(this.#path)) return [];
    if (this.query("select 1 from sqlite_schema where name = 'holdfast_layout'").length === 0) return [];
    return findSqliteViolations(async (text) => this.query(text), options);
  }

  close(): void {
    this.#database?.close();
  }
}

/** Creates the tables, and ends the grace period of guardDataLoss that begins with their first use. */
export async function markLongInUse(path: string): Promise<void> {
  const driver = sqlite(path, { guardDataLoss: { maxTtlMs: 1_000 }, silenceWarnings: ["guardDataLoss"] });
  await driver.open(NO_EVENTS);
  await driver.close();
  const database = new Database(path);
  database.exec("update holdfast_2_identity set grace_begins = 0, grace_ends = 0");
  database.close();
}
