// A server that ceases to be the primary, but leaves its connections open: they lead to a server that only reads. What each client
// library does then stands in the guide, docs/guide/postgres.md.

import { Client, Pool } from "pg";
import postgresJs from "postgres";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { createSqlDriver } from "../../../src/drivers/sql/driver.ts";
import { createPostgresDialect } from "../../../src/drivers/sql/postgres/dialect.ts";
import { postgres } from "../../../src/drivers/sql/postgres/driver.ts";
import { postgresFromUrl } from "../../../src/drivers/sql/postgres/from-url.ts";
import type { Lock, Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import type { TcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { toDriverEvents } from "../../support/driver-events.ts";
import type { PostgresStandby } from "../../support/stores/postgres.ts";
import { queryPostgres, startPostgresStandby } from "../../support/stores/postgres.ts";
import type { TestDatabase } from "../../support/stores/sql-database.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";
import { openPostgresJsUrl } from "../../support/stores/url-clients.ts";

const OPTIONS = { silenceWarnings: ["durability"], warn: () => undefined } as const;
/** A pool of its user has so many connections. */
const POOL_SIZE = 10;
/** From the first call that was refused until the primary is found. */
const FOUND_MS = 2_000;

/** A transaction of the user on a connection of the client, which only reads. */
interface Transaction {
  query(text: string): PromiseLike<unknown>;
}

interface Row {
  readonly driver: Driver;
  readonly begin?: () => Promise<Transaction>;
  readonly end?: () => Promise<unknown>;
}

interface Staying {
  readonly driver: Driver;
  readonly query: (text: string) => PromiseLike<unknown>;
  readonly end: () => Promise<unknown>;
}

const ROWS: Readonly<Record<string, (url: string) => Row>> = {
  "a url, by pg": (url) => ({ driver: postgresFromUrl(url, OPTIONS) }),
  "a url, by postgres.js": (url) => ({
    driver: createSqlDriver(
      createPostgresDialect(async () => openPostgresJsUrl(url), true, OPTIONS),
      OPTIONS,
    ),
  }),
  "a Pool of pg": (url) => {
    const pool = new Pool({ connectionString: url, max: POOL_SIZE });
    let client: Awaited<ReturnType<Pool["connect"]>> | undefined;
    const begin = async (): Promise<Transaction> => {
      client = await pool.connect();
      return client;
    };
    const end = async (): Promise<void> => {
      client?.release();
      await pool.end();
    };
    return { driver: postgres(pool, OPTIONS), begin, end };
  },
};

/** Clients whose connections the driver cannot close. */
const STAYING: Readonly<Record<string, (url: string) => Promise<Staying>>> = {
  "a Client of pg": async (url) => {
    const client = new Client({ connectionString: url });
    await client.connect();
    return { driver: postgres(client, OPTIONS), query: (text) => client.query(text), end: () => client.end() };
  },
  "a client of postgres.js": async (url) => {
    const sql = postgresJs(url, { max: 1, onnotice: () => undefined });
    return { driver: postgres(sql, OPTIONS), query: (text) => sql.unsafe(text), end: () => sql.end({ timeout: 0 }) };
  },
};
const STAYING_CLIENTS = Object.keys(STAYING);

withPostgres((server) => {
  const target = { host: "127.0.0.1", port: 0 };
  const databases = new Map<string, TestDatabase>();
  let proxy: TcpProxy;
  let standby: PostgresStandby;
  beforeAll(async () => {
    for (const name of [...Object.keys(ROWS), ...STAYING_CLIENTS]) databases.set(name, await server().freshDatabase());
    standby = await startPostgresStandby(server());
    target.port = server().port;
    proxy = await tcpProxy(target);
    return async () => {
      await proxy.close();
      await standby.dispose();
    };
  }, 120_000);

  const behindProxy = ({ url }: TestDatabase): string =>
    url.replace(`:${server().port}/`, `:${(proxy.address as { readonly port: number }).port}/`);

  /** Uses all connections of the pool, and returns how long it took. */
  const useLocks = async (locks: Locks): Promise<number> => {
    const startedAt = performance.now();
    const keys = Array.from({ length: POOL_SIZE }, (_, index) => `key ${index}`);
    await Promise.all(keys.map((key) => locks.using(key, () => undefined)));
    return performance.now() - startedAt;
  };

  /** A process whose claims are recalled by pushes, with connections that no call uses. */
  const openIdle = async (url: string) => {
    const pool = new Pool({ connectionString: url, max: 4 });
    const warnings: string[] = [];
    const driver = postgres(pool, { ...OPTIONS, recall: true, warn: (warning) => warnings.push(warning) });
    let missed = 0;
    await driver.open(
      toDriverEvents((id) => {
        if (id === null) missed++;
      }),
    );
    await Promise.all(Array.from({ length: 4 }, () => driver.list({ key: "key" }, { max: 1 })));
    onTestFinished(async () => {
      await driver.close();
      await pool.end();
    });
    return { driver, warnings, missed: () => missed };
  };

  const catchUp = async (): Promise<void> => {
    const [row] = await server().query("select pg_current_wal_flush_lsn() as lsn");
    const isThere = async () =>
      (await standby.query("select pg_last_wal_replay_lsn() >= $1::pg_lsn as done", [String(row?.lsn)]))[0]?.done ===
      true;
    await until(isThere, { within: 10_000, what: "the standby" });
  };

  test("the primary is found, the holder keeps its lock, and a transaction of the user is not ended", async () => {
    const clients = Object.entries(ROWS).map(([name, create]) => {
      const database = databases.get(name) as TestDatabase;
      const row = create(behindProxy(database));
      const other = createLocks(postgresFromUrl(behindProxy(database), OPTIONS), { ttl: "20s" });
      return { name, database, ...row, locks: createLocks(row.driver, { ttl: "20s", order: "strict" }), other };
    });
    onTestFinished(async () => {
      for (const { locks, other, end } of clients) {
        await locks.close();
        await other.close();
        await end?.();
      }
    }, 30_000);
    const listTimes = async (): Promise<Record<string, number>> =>
      Object.fromEntries(await Promise.all(clients.map(async ({ name, locks }) => [name, await useLocks(locks)])));
    const allFound = Object.fromEntries(clients.map(({ name }) => [name, true]));
    const areFound = (times: Record<string, number>) =>
      Object.fromEntries(Object.entries(times).map(([name, ms]) => [name, ms < FOUND_MS || ms]));

    const held = await Promise.all(clients.map(({ locks }) => locks.acquire("held")));
    const busy = await Promise.all(clients.map(({ other }) => other.acquire("busy")));
    const waiting = Promise.all(clients.map(({ locks }) => locks.acquire("busy")));
    waiting.catch(() => undefined);
    await useAll(clients, useLocks);
    // the connections are opened again, to a server that is a standby, and stay open
    await until(async () => (await countListeners(server().url)) === clients.length, {
      within: 10_000,
      what: "LISTEN",
    });
    target.port = standby.port;
    proxy.disconnect();
    for (const { name, locks } of clients) {
      const isRefused = async (): Promise<boolean> =>
        await locks.tryAcquire("key").then(
          () => false,
          (error: unknown) => {
            return /is a standby/.test(String(error));
          },
        );
      await until(isRefused, { within: 10_000, what: `the refusal, ${name}` });
    }
    target.port = server().port;
    expect(areFound(await listTimes())).toEqual(allFound);
    await until(async () => (await countListeners(server().url)) === clients.length, {
      within: 10_000,
      what: "LISTEN",
    });

    // the primary only reads from now on, and the standby takes its place
    const transactions = await Promise.all(clients.map(async ({ begin }) => await begin?.()));
    for (const transaction of transactions) await transaction?.query("begin read only");
    await useAll(clients, useLocks);
    const idle = await openIdle(behindProxy(databases.get("a Pool of pg") as TestDatabase));
    await server().query("alter system set default_transaction_read_only = on");
    await server().query("select pg_reload_conf()");
    await catchUp();
    await standby.promote();
    target.port = standby.port;
    // the connection that listens leads to the new primary now, those of the calls to the old one
    await server().query("select pg_terminate_backend(pid) from pg_stat_activity where query ilike 'listen%'");
    await until(() => idle.missed() === 2, { within: 10_000, what: "the end of one connection, and a verified one" });
    expect(idle.warnings.filter((warning) => /notifications/.test(warning))).toEqual([]);
    await idle.driver.close();
    expect(areFound(await listTimes())).toEqual(allFound);
    await until(async () => (await countListeners(server().url)) === 0, { within: FOUND_MS, what: "the last LISTEN" });
    expect(await Promise.all(busy.map((lock) => lock.release()))).toEqual(busy.map(() => true));
    for (const lock of await waiting) expect(await lock.release()).toBe(true);
    for (const transaction of transactions) await transaction?.query("commit");
    expect(await Promise.all(held.map((lock: Lock) => lock.release()))).toEqual(held.map(() => true));
  }, 60_000);

  test.each(STAYING_CLIENTS)("%s stays where it is, and says so", async (name) => {
    const { url } = databases.get(name) as TestDatabase;
    const { driver, query, end } = await (STAYING[name] as (typeof STAYING)[string])(
      url.replace(`:${server().port}/`, `:${standby.port}/`),
    );
    const locks = createLocks(driver);
    // it takes a moment until a session has what the server has reloaded
    const isReadOnly = async (run: (text: string) => PromiseLike<unknown>): Promise<boolean> =>
      JSON.stringify(await run("select current_setting('default_transaction_read_only')")).includes('"on"');
    onTestFinished(async () => {
      await standby.query("alter system reset default_transaction_read_only");
      await standby.query("select pg_reload_conf()");
      const isReset = async () => !(await isReadOnly((text) => standby.query(text)));
      await until(isReset, { within: 10_000, what: "the reset" });
      await locks.close();
      await end();
    });
    await locks.using("key", () => undefined);
    await query("set default_transaction_read_only = on");
    await locks.using("key", () => undefined); // only a setting of this session
    await query("reset default_transaction_read_only");
    await standby.query("alter system set default_transaction_read_only = on");
    await standby.query("select pg_reload_conf()");
    await until(() => isReadOnly(query), { within: 10_000, what: "a session that only reads" });
    await expect(locks.tryAcquire("key")).rejects.toThrow(/the database is read-only: connect to the primary server/);
    await query("select 1");
  });
});

async function useAll<T extends { readonly locks: Locks }>(
  clients: readonly T[],
  use: (locks: Locks) => Promise<unknown>,
): Promise<void> {
  await Promise.all(clients.map(({ locks }) => use(locks)));
}

async function countListeners(url: string): Promise<number> {
  const [row] = await queryPostgres(url, "select count(*)::int as n from pg_stat_activity where query ilike 'listen%'");
  return Number(row?.n);
}
