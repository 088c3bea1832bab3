// fence() in transactions of query builders, and rows with a version over them, on SQLite. Drizzle runs on the client of libsql
// (@libsql/client); the others run on their drivers for better-sqlite3, with libsql in its place, which has the same methods.

import type Libsql from "libsql";
import { beforeEach, expect, onTestFinished, test } from "vitest";
import { fence } from "../../../src/fencing/index.ts";
import { createTestLock } from "../../support/fence-scenarios.ts";
import type { InteropModule } from "../../support/interop.ts";
import { loadInterop } from "../../support/interop.ts";
import type { Transact } from "../../support/query-builder-scenarios.ts";
import { expectFenced } from "../../support/query-builder-scenarios.ts";
import { queryOnce, useSqliteFiles } from "../../support/stores/sqlite.ts";
import { testVersionedRow } from "../../support/versioned-row-tests.ts";

/** A query builder with a file open. */
interface OpenBuilder {
  readonly handle: unknown;
  readonly transact: Transact;
  close(): unknown;
}

const BUILDERS: Readonly<Record<string, () => OpenBuilder | Promise<OpenBuilder>>> = {
  "Kysely on libsql": openKysely,
  "Drizzle on @libsql/client": openDrizzle,
  "Knex on libsql": openKnex,
  "TypeORM on libsql": openTypeOrm,
};
// the copy that @libsql/client uses: with two copies in one process the file would lose its locks, and writes with them
const Database: typeof Libsql = loadInterop("libsql");
const newFile = useSqliteFiles();
let path = "";

const query = (text: string) => queryOnce(new Database(path), text);

beforeEach(async () => {
  path = newFile();
  await query("pragma journal_mode = wal");
});

for (const [name, open] of Object.entries(BUILDERS)) {
  testVersionedRow(name, open, query);

  test(`${name}: fence() in its transactions`, async () => {
    const { handle, transact, close } = await open();
    onTestFinished(async () => void (await close()));
    await expectFenced(handle, "builder", transact);
    await expect(fence(handle, createTestLock(99), { prefix: "builder" })).rejects.toThrow(/inside a transaction/);
    const tokens = await query("select token from builder_1_fences order by slot");
    expect(tokens).toEqual([{ token: 50n }, { token: 40n }]);
  });
}

function openKysely(): OpenBuilder {
  const { Kysely, SqliteDialect, CamelCasePlugin } = loadInterop("kysely");
  const dialect = new SqliteDialect({ database: new Database(path) });
  const handle = new Kysely({ dialect, plugins: [new CamelCasePlugin()] });
  return { handle, transact: (work) => handle.transaction().execute(work), close: () => handle.destroy() };
}

function openDrizzle(): OpenBuilder {
  const client = loadInterop("@libsql/client").createClient({ url: `file:${path}` });
  const handle = loadInterop("drizzle-orm/libsql").drizzle(client);
  return { handle, transact: (work) => handle.transaction(work), close: () => client.close() };
}

function openKnex(): OpenBuilder {
  const BetterSqlite3: InteropModule = loadInterop("knex/lib/dialects/better-sqlite3");
  class Libsql extends BetterSqlite3 {
    _driver(): unknown {
      return Database;
    }
  }
  const handle = loadInterop("knex")({ client: Libsql, connection: { filename: path }, useNullAsDefault: true });
  return { handle, transact: (work) => handle.transaction(work), close: () => handle.destroy() };
}

async function openTypeOrm(): Promise<OpenBuilder> {
  const { DataSource } = loadInterop("typeorm");
  const handle = await new DataSource({ type: "better-sqlite3", database: path, driver: Database }).initialize();
  return { handle, transact: (work) => handle.transaction(work), close: () => handle.destroy() };
}
