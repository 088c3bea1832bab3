/** What a connection says of itself: its settings and the version of SQLite. */

import type { SqliteDatabase } from "../clients/types.ts";

/** The value of a setting. */
export function readPragma(database: SqliteDatabase, name: string): unknown {
  const [row] = database.prepare(`pragma ${name}`).all();
  return row === undefined ? undefined : Object.values(row)[0];
}

export function readVersion(database: SqliteDatabase): string {
  return String(database.prepare("select sqlite_version() as version").all()[0]?.version);
}
