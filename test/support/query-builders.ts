/** Kysely, Drizzle, Knex and TypeORM for tests: installed into test/interop when a test first needs them. */

import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

const FOLDER = resolve("test/interop");
const INSTALL_MS = 180_000;

/** Members of their modules, as the tests call them. */
// biome-ignore lint/suspicious/noExplicitAny: their types are not installed with the project
export type InteropModule = any;

/** Loads a module of a query builder. */
export function loadInterop(name: string): InteropModule {
  const isInstalled = ["kysely", "drizzle-orm", "knex", "typeorm"].every((one) =>
    existsSync(join(FOLDER, "node_modules", one)),
  );
  if (!isInstalled) {
    execFileSync("npm", ["install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"], {
      cwd: FOLDER,
      stdio: "pipe",
      timeout: INSTALL_MS,
    });
  }
  return createRequire(join(FOLDER, "package.json"))(name);
}
