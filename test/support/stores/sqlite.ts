/** Files of SQLite for tests. */

import { accessSync, constants, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";

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
