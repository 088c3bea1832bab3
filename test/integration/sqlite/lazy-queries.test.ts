// Query builders of Knex and Drizzle execute each time their then() is called. Given to a lock they insert one row.

import type Libsql from "libsql";
import { afterAll, beforeEach, expect, onTestFinished, test } from "vitest";
import { createLocks } from "../../../src/client/locks.ts";
import { wrapJob } from "../../../src/cron/index.ts";
import { memory } from "../../../src/drivers/memory.ts";
import { createFenceGuard } from "../../../src/fencing/index.ts";
import { webLocks } from "../../../src/web-locks/index.ts";
import type { InteropModule } from "../../support/interop.ts";
import { loadInterop } from "../../support/interop.ts";
import { queryOnce, useSqliteFiles } from "../../support/stores/sqlite.ts";

/** Returns a query builder that inserts a row; it has not executed yet. */
type Insert = () => PromiseLike<unknown>;

interface OpenBuilder {
  readonly insert: Insert;
  close(): unknown;
}

const Database: typeof Libsql = loadInterop("libsql");
const newFile = useSqliteFiles();
const locks = createLocks(memory());
let path = "";
let jobCount = 0;

/** Two runs of one job in one second would be one tick. */
const nextJob = (): string => `job ${jobCount++}`;

const BUILDERS: Readonly<Record<string, () => OpenBuilder>> = { Knex: openKnex, Drizzle: openDrizzle };

const PLACES: Readonly<Record<string, (insert: Insert) => Promise<unknown>>> = {
  "using()": (insert) => locks.using("k", insert),
  "lock.run()": async (insert) => {
    await using lock = await locks.acquire("k");
    return await lock.run(insert);
  },
  "wrap()": (insert) => locks.wrap("k", insert)(),
  "wrap() without the lock": (insert) => locks.wrap("k", { condition: () => false }, insert)(),
  "wrapJob()": (insert) => wrapJob(locks, nextJob(), insert)(new Date()),
  "wrapJob() without overlap": (insert) => wrapJob(locks, nextJob(), insert, { overlap: false })(new Date()),
  "run() of a fence guard": (insert) => createFenceGuard().run("k", 1n, insert),
  "request() of Web Locks": (insert) => webLocks(locks).request("k", insert),
};

beforeEach(async () => {
  path = newFile();
  await queryOnce(new Database(path), "create table rows (id integer primary key, text text)");
});

afterAll(() => locks.close());

for (const [builder, open] of Object.entries(BUILDERS)) {
  test.each(Object.entries(PLACES))(`${builder}: a query given to %s inserts one row`, async (_place, run) => {
    const { insert, close } = open();
    onTestFinished(async () => void (await close()));
    await run(insert);
    expect(await queryOnce(new Database(path), "select count(*) as count from rows")).toEqual([{ count: 1n }]);
  });
}

function openKnex(): OpenBuilder {
  const BetterSqlite3: InteropModule = loadInterop("knex/lib/dialects/better-sqlite3");
  class OnLibsql extends BetterSqlite3 {
    _driver(): unknown {
      return Database;
    }
  }
  const knex = loadInterop("knex")({ client: OnLibsql, connection: { filename: path }, useNullAsDefault: true });
  return { insert: () => knex("rows").insert({ text: "a" }), close: () => knex.destroy() };
}

function openDrizzle(): OpenBuilder {
  const { sqliteTable, integer, text } = loadInterop("drizzle-orm/sqlite-core");
  const rows = sqliteTable("rows", { id: integer().primaryKey(), text: text() });
  const client = loadInterop("@libsql/client").createClient({ url: `file:${path}` });
  const drizzle = loadInterop("drizzle-orm/libsql").drizzle(client);
  return { insert: () => drizzle.insert(rows).values({ text: "a" }), close: () => client.close() };
}
