// A server that ceases to be the primary, but leaves its connections open: they lead to a server that only reads. What each client
// library does then stands in the guide, docs/guide/mysql.md.

import * as mariadb from "mariadb";
import { createConnection, createPool } from "mysql2/promise";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { createSqlDriver } from "../../../src/drivers/sql/driver.ts";
import { createMysqlDialect } from "../../../src/drivers/sql/mysql/dialect.ts";
import { mysql } from "../../../src/drivers/sql/mysql/driver.ts";
import { mysqlFromUrl } from "../../../src/drivers/sql/mysql/from-url.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import type { TcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import type { MariaDbReplica } from "../../support/stores/mariadb.ts";
import { REPLICATED, startMariaDbReplica } from "../../support/stores/mariadb.ts";
import type { TestDatabase } from "../../support/stores/sql-database.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";
import { openMariadbUrl } from "../../support/stores/url-clients.ts";

const OPTIONS = { silenceWarnings: ["durability"], warn: () => undefined } as const;
/** A pool of its user has so many connections. */
const POOL_SIZE = 10;
/** From the first call that was refused until the primary is found. */
const FOUND_MS = 2_000;

interface Row {
  readonly driver: Driver;
  /** Begins a transaction of the user on a connection of the client, which only reads, and returns what commits it. */
  readonly begin?: () => Promise<() => Promise<unknown>>;
  readonly end?: () => Promise<unknown>;
}

/** What mysql2 and mariadb have in common. */
interface PoolLike {
  getConnection(): Promise<{ query(text: string): Promise<unknown>; release(): unknown }>;
  end(): Promise<unknown>;
}

function toRow(pool: PoolLike): Row {
  return {
    driver: mysql(pool as never, OPTIONS),
    async begin() {
      const connection = await pool.getConnection();
      await connection.query("start transaction read only");
      return async () => {
        await connection.query("commit");
        await connection.release();
      };
    },
    end: () => pool.end(),
  };
}

/** `rootUrl`: of an account that `read_only` does not bind. */
const ROWS: Readonly<Record<string, (url: string, rootUrl: string) => Row>> = {
  "a url, by mysql2": (url) => ({ driver: mysqlFromUrl(url, OPTIONS) }),
  "a url, by mariadb": (url) => ({
    driver: createSqlDriver(
      createMysqlDialect(async () => openMariadbUrl(url), true, OPTIONS),
      OPTIONS,
    ),
  }),
  "a url of root": (_, rootUrl) => ({ driver: mysqlFromUrl(rootUrl, OPTIONS) }),
  "a pool of mysql2": (url) => toRow(createPool({ uri: url, connectionLimit: POOL_SIZE })),
  "a pool of mariadb": (url) => {
    const { hostname: host, port, username: user, password, pathname } = new URL(url);
    const settings = { host, port: Number(port), user, password, database: pathname.slice(1) };
    return toRow(mariadb.createPool({ ...settings, connectionLimit: POOL_SIZE }));
  },
};

withMariaDb(
  (server) => {
    const target = { host: "127.0.0.1", port: 0 };
    let database: TestDatabase;
    let proxy: TcpProxy;
    let replica: MariaDbReplica;
    /** The url of a user without the right to write to a server that only reads. */
    let url: string;
    let rootUrl: string;
    beforeAll(async () => {
      database = await server().freshDatabase();
      replica = await startMariaDbReplica(server());
      await database.query("create user app identified by 'secret'");
      await database.query(`grant all on ${database.name}.* to app`);
      target.port = server().port;
      proxy = await tcpProxy(target);
      const { port } = proxy.address as { readonly port: number };
      url = database.urlOf("app", "secret").replace(`:${server().port}/`, `:${port}/`);
      rootUrl = database.url.replace(`:${server().port}/`, `:${port}/`);
      return async () => {
        await proxy.close();
        await replica.dispose();
      };
    }, 120_000);

    test("the primary is found, the holder keeps its lock, and a transaction of the user is not ended", async () => {
      const clients = Object.entries(ROWS).map(([name, create]) => {
        const row = create(url, rootUrl);
        return { name, ...row, locks: createLocks(row.driver, { ttl: "20s", order: "strict" }) };
      });
      onTestFinished(async () => {
        for (const { locks, end } of clients) {
          await locks.close();
          await end?.();
        }
      }, 30_000);
      /** Uses all connections of each pool. */
      const useLocks = async (name: string, locks: Locks): Promise<void> => {
        const keys = Array.from({ length: POOL_SIZE }, (_, index) => `${name} ${index}`);
        await Promise.all(keys.map((key) => locks.using(key, () => undefined)));
      };
      const held = await Promise.all(clients.map(({ name, locks }) => locks.acquire(name)));
      const commits = await Promise.all(clients.map(async ({ begin }) => await begin?.()));
      await Promise.all(clients.map(({ name, locks }) => useLocks(name, locks)));
      await server().query("set global read_only = 1");
      await replica.catchUp();
      await replica.promote();
      target.port = replica.port;
      const times = await Promise.all(
        clients.map(async ({ name, locks }) => {
          const startedAt = performance.now();
          await useLocks(name, locks);
          return [name, performance.now() - startedAt] as const;
        }),
      );
      expect(times.filter(([, ms]) => ms >= FOUND_MS)).toEqual([]);
      for (const { name, locks } of clients) await locks.acquire(`${name} next`);
      const rival = createLocks(mysqlFromUrl(database.url.replace(`:${server().port}/`, `:${replica.port}/`), OPTIONS));
      onTestFinished(() => rival.close());
      const seen = await Promise.all(
        clients.map(async ({ name }) => [name, (await rival.tryAcquire(`${name} next`)) === null]),
      );
      expect(seen, "locks that the new primary has granted").toEqual(clients.map(({ name }) => [name, true]));
      for (const commit of commits) await commit?.();
      expect(await Promise.all(held.map((lock) => lock.release()))).toEqual(held.map(() => true));
    }, 60_000);

    test("a single connection stays where it is, and says so", async () => {
      const connection = await createConnection({ uri: url });
      onTestFinished(() => connection.end());
      const locks = createLocks(mysql(connection as never, OPTIONS));
      onTestFinished(() => locks.close());
      await locks.using("key", () => undefined);
      await replica.query("set global read_only = 1");
      await expect(locks.tryAcquire("key")).rejects.toThrow(/the server is read-only: connect to the primary server/);
      await connection.query("select 1");
    });
  },
  { settings: REPLICATED },
);
