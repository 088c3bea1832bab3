/**
 * A process that uses locks of an SQLite file as fast as it can until it is killed. It says what it was told, one line for
 * each answer, before it does anything else: "held KEY TOKEN", "releasing KEY TOKEN".
 */

import { writeSync } from "node:fs";
import { createRequire } from "node:module";
import type { SqliteLike } from "../../../src/drivers/sql/sqlite/driver.ts";
import { sqlite } from "../../../src/drivers/sql/sqlite/driver.ts";
import { createLocks } from "../../../src/index.ts";

export interface SqliteUserOptions {
  readonly path: string;
  /** The module of a library, and what to set on its handle; null: the driver opens the file itself. */
  readonly handle: { readonly module: string; readonly pragmas: readonly string[] } | null;
  readonly keys: readonly string[];
  /** After so many grants it does nothing more; 0: it goes on. */
  readonly turns: number;
}

const { path, handle, keys, turns } = JSON.parse(process.argv[2] ?? "") as SqliteUserOptions;

function openHandle(): SqliteLike | string {
  if (handle === null) return path;
  const Library = createRequire(import.meta.url)(handle.module) as new (path: string) => SqliteLike;
  const database = new Library(path);
  database.exec("pragma busy_timeout = 5000");
  for (const pragma of handle.pragmas) database.exec(`pragma ${pragma}`);
  database.exec("pragma busy_timeout = 0");
  return database;
}

function say(text: string): void {
  writeSync(1, `${text}\n`);
}

const driver = sqlite(openHandle(), { silenceWarnings: ["mode", "journal", "durability"] });
const locks = createLocks(driver);

/** What `holdfast doctor` says of the last grants. */
async function describeDurability(): Promise<string> {
  const checks = (await driver.diagnose?.()) ?? [];
  return checks.find(({ name }) => name === "durability")?.message ?? "";
}

for (let turn = 1; turns === 0 || turn <= turns; turn++) {
  const isKept = turn % 4 === 0 || turns === 1;
  const key = isKept ? `kept ${process.pid} ${turn}` : (keys[turn % keys.length] as string);
  const lock = await locks.acquire(key, { ttl: isKept ? "10m" : "2s" });
  if (turns === 1) say(await describeDurability());
  say(`held ${lock.token} ${key}`);
  if (isKept) continue;
  await new Promise((resolve) => setTimeout(resolve, Math.random() * 3));
  say(`releasing ${lock.token} ${key}`);
  await lock.release();
}
// what it holds keeps no process alive
setInterval(() => undefined, 1_000);
