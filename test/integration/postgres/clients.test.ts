// The adapters of the client libraries, whatever settings the user's client has.

import pg from "pg";
import postgres from "postgres";
import { describe, expect, onTestFinished, test } from "vitest";
import { adaptPostgresClient } from "../../../src/drivers/sql/clients/detect.ts";
import type { LoadOptions } from "../../../src/drivers/sql/clients/load.ts";
import { loadPostgresClient } from "../../../src/drivers/sql/clients/load.ts";
import type { SqlClient, SqlConnection } from "../../../src/drivers/sql/clients/types.ts";
import { until } from "../../../src/testing/until.ts";
import { lockWithLibraries } from "../../support/installed-package.ts";
import { startPgBouncer } from "../../support/stores/pgbouncer.ts";
import {
  expectEndsReportedOnce,
  expectFourConnections,
  expectOneCallerAtATime,
  expectSilentLoginsGivenUp,
  expectUsableAgain,
  query,
} from "../../support/stores/sql-client-tests.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";
import { openPostgresJsUrl } from "../../support/stores/url-clients.ts";

interface Subject {
  readonly client: SqlClient;
  /** What the user's own listeners heard. */
  readonly errors: unknown[];
}

const CHANGED = { getTypeParser: () => () => "changed" };

/** Settings that change what a query returns. */
const HOSTILE: Readonly<Record<string, readonly object[]>> = {
  pg: [{ types: CHANGED }, { types: CHANGED, statement_timeout: 5_000, application_name: "x" }],
  "postgres.js": [
    { transform: { undefined: null, ...postgres.camel } },
    { types: { int: { to: 23, from: [20, 23, 25], parse: () => "changed", serialize: String } }, fetch_types: false },
  ],
};

withPostgres((server) => {
  const LIBRARIES: Readonly<Record<string, (options?: { max?: number }) => Subject>> = {
    pg(options) {
      const pool = new pg.Pool({ connectionString: server().url, max: 2, ...options });
      onTestFinished(() => pool.end());
      const errors: unknown[] = [];
      const client = adaptPostgresClient(pool);
      pool.on("error", (error: unknown) => errors.push(error));
      return { client, errors };
    },
    "postgres.js"(options) {
      const sql = postgres(server().url, { max: 2, onnotice: () => undefined, ...options });
      onTestFinished(() => sql.end({ timeout: 1 }));
      return { client: adaptPostgresClient(sql), errors: [] };
    },
  };

  async function terminate(pid: unknown): Promise<void> {
    await server().query("select pg_terminate_backend($1::int)", [pid]);
    await until(
      async () => (await server().query("select 1 from pg_stat_activity where pid = $1::int", [pid])).length === 0,
      { within: 5_000, what: "the end of the connection" },
    );
  }

  describe.concurrent("by url", () => {
    test.each(["pg", "postgres"])("%s is used where it is the only library", async (library) => {
      const { url } = await server().freshDatabase();
      expect(await lockWithLibraries(url, [`node_modules/${library}`])).toBe("locked");
    });

    test("without a library the error says what to install", async () => {
      expect(await lockWithLibraries(server().url, ["node_modules/mysql2"])).toBe(
        'LOCK_STORE_REFUSED PostgreSQL urls need the package "pg" or "postgres", neither of which is installed: npm install pg',
      );
    });
  });

  describe.each(Object.entries(LIBRARIES))("%s", (name, create) => {
    test.each([0, 1, 2])("a client returns plain rows (settings %i)", async (which) => {
      const { client } = create(which === 0 ? {} : (HOSTILE[name]?.[which - 1] ?? {}));
      expect(client).toMatchObject({ dialect: "postgres", library: name });
      const { rows, affectedCount } = await query(
        client,
        `select $1::text as some_word, $2::int4 as small, -5::int2 as two, $3::bool as yes, $4::text as nothing,
          ($5::bigint)::text as big_text, '$1' as mark, 1.50::numeric(5,2)::text as exact`,
        ["a'\\\"é$1", 7, true, null, 2n ** 63n - 1n],
      );
      expect(affectedCount).toBe(0);
      expect(rows).toEqual([
        {
          some_word: "a'\\\"é$1",
          small: 7,
          two: -5,
          yes: true,
          nothing: null,
          big_text: "9223372036854775807",
          mark: "$1",
          exact: "1.50",
        },
      ]);
    });

    test("large integers and bytes are exact", async () => {
      const { client } = create();
      const { rows } = await query(client, "select $1::int8 as big, 5::int8 as small, $2::bytea as bytes", [
        -(2n ** 63n),
        new Uint8Array([0, 255, 39, 92]),
      ]);
      expect(rows).toEqual([{ big: -(2n ** 63n), small: 5, bytes: Buffer.from([0, 255, 39, 92]) }]);
    });

    test("no text gets out of its parameter", async () => {
      const { client } = create();
      const connection = await client.connect();
      for (const setting of ["on", "off"]) {
        await connection.query(`set standard_conforming_strings = ${setting}`);
        for (const text of ["\\", "\\'", "'; drop table x; -- ", "$1", "$$", "漢字 😀", "", "\n"]) {
          expect((await connection.query("select $1::text as t", [text])).rows).toEqual([{ t: text }]);
        }
      }
      connection.release();
    });

    test("counts the rows that a statement changes, and returns the first result with columns", async () => {
      const { client } = create();
      const connection = await client.connect();
      await connection.query("create temp table t (n int)");
      expect(await connection.query("insert into t values (1), (2)")).toEqual({ rows: [], affectedCount: 2 });
      expect(await connection.query("update t set n = n + 1 returning n")).toEqual({
        rows: [{ n: 2 }, { n: 3 }],
        affectedCount: 2,
      });
      expect(await connection.query("insert into t values (9); select count(*)::int as n from t")).toEqual({
        rows: [{ n: 3 }],
        affectedCount: 1,
      });
      connection.release();
    });

    test("a connection released as broken in a statement is not used by a waiting caller", async () => {
      const { client } = create({ max: 1 });
      const first = await client.connect();
      const pending = first.query("select pg_sleep(30)").catch((error: unknown) => error);
      const waiting = client.connect();
      // the library sends in a later turn
      await until(
        async () =>
          (
            await server().query(
              "select 1 from pg_stat_activity where query like '%pg_sleep(30)%' and state = 'active' and pid <> pg_backend_pid()",
            )
          ).length > 0,
        { within: 5_000, what: "the statement at the server" },
      );
      const start = performance.now();
      first.release(true);
      first.release();
      const second = await waiting;
      expect((await second.query("select 1 as n")).rows).toEqual([{ n: 1 }]);
      expect(performance.now() - start).toBeLessThan(10_000);
      second.release();
      expect(await pending).toBeInstanceOf(Error);
    });

    test("a transaction that was not finished does not reach the next caller", async () => {
      const { client } = create({ max: 1 });
      const first = await client.connect();
      await first.query("begin isolation level read committed");
      await expect(first.query("select 1/0 as n")).rejects.toMatchObject({ code: "22012" });
      first.release();
      expect(await query(client, "select 1 as n")).toMatchObject({ rows: [{ n: 1 }] });
      const second = await client.connect();
      await second.query("begin");
      await second.query("commit");
      second.release();
      expect(await query(client, "select 2 as n")).toMatchObject({ rows: [{ n: 2 }] });
    });

    test("a connection killed in use or idle leaves the pool, and the process goes on", async () => {
      const { client, errors } = create({ max: 1 });
      const first = await client.connect();
      await terminate(await pidOf(first));
      await expect(first.query("select 1 as n")).rejects.toThrow();
      first.release();
      const second = await client.connect();
      const pid = await pidOf(second);
      second.release();
      await terminate(pid);
      await expectUsableAgain(client);
      if (name === "pg") expect(errors).toMatchObject([{ code: "57P01" }]);
    });

    test("an error does not contain the values of parameters", async () => {
      const { client } = create();
      const error: unknown = await query(client, "select $1::text, 1/0 as n", ["a-secret-id"]).catch((e: unknown) => e);
      expect(error).toMatchObject({ code: "22012", severity: "ERROR" });
      const properties = Object.getOwnPropertyNames(error).map((key) =>
        String((error as Record<string, unknown>)[key]),
      );
      expect(properties.join("\n")).not.toContain("a-secret-id");
    });

    test("a dedicated connection is beside the pool, hears notifications and reports its end once", async () => {
      const { client } = create({ max: 1 });
      const heard: string[] = [];
      const pooled = await client.connect();
      const dedicated = await client.connectDedicated!();
      dedicated.onNotification!((channel, payload) => heard.push(`${channel}: ${payload}`));
      await dedicated.query('listen "Quoted"');
      await pooled.query("select pg_notify('Quoted', 'hello')");
      await until(() => heard.length > 0, { within: 5_000, what: "the notification" });
      expect(heard).toEqual(["Quoted: hello"]);
      dedicated.release();
      await expectEndsReportedOnce(client, async (connection) => terminate(await pidOf(connection)));
      pooled.release();
    });
  });

  test("a dedicated connection that cannot be opened rejects", async () => {
    const database = await server().freshDatabase();
    for (const [name, create] of Object.entries({
      pg: () => new pg.Pool({ connectionString: database.url }),
      "postgres.js": () => postgres(database.url),
    })) {
      const own = create();
      const client = adaptPostgresClient(own);
      expect(client.library).toBe(name);
      await query(client, "select 1 as n");
      await server().query(`alter database ${database.name} with allow_connections false`);
      await expect(client.connectDedicated!()).rejects.toThrow(/not currently accepting connections/);
      await server().query(`alter database ${database.name} with allow_connections true`);
      await own.end();
    }
  });

  // before pg 8.19 clients do not tell their status
  const VERSIONS = [
    ["pg", true],
    ["pg before 8.19", false],
  ] as const;
  const hideStatus = (client: object): void => void Object.assign(client, { getTransactionStatus: undefined });

  test.each(VERSIONS)(
    "%s: a client is refused while a transaction that the user began before is open",
    async (_, isNew) => {
      const own = new pg.Client(server().url);
      if (!isNew) hideStatus(own);
      await own.connect();
      onTestFinished(() => own.end());
      await own.query("begin");
      const client = adaptPostgresClient(own);
      await expect(client.connect()).rejects.toThrow("inside a transaction");
      await own.query("selec").catch(() => undefined);
      await expect(client.connect()).rejects.toThrow("inside a transaction");
      await own.query("rollback");
      expect((await query(client, "select 3 as n")).rows).toEqual([{ n: 3 }]);
    },
  );

  test.each(VERSIONS)(
    "%s: callers of a single client take turns, and none gets into a transaction of the user",
    async (_, isNew) => {
      const own = new pg.Client(server().url);
      if (!isNew) hideStatus(own);
      await own.connect();
      onTestFinished(() => own.end());
      const client = adaptPostgresClient(own);
      const connection = await expectOneCallerAtATime(client);
      await expect(connection.query("begin")).rejects.toThrow("needs a Pool");
      await own.query("begin");
      await expect(connection.query("select 1 as n")).rejects.toThrow("transaction of the user");
      connection.release();
      await expect(client.connect()).rejects.toThrow("inside a transaction");
      await own.query("rollback");
      expect((await query(client, "select 3 as n")).rows).toEqual([{ n: 3 }]);
    },
  );

  test.each(VERSIONS)(
    "%s: a connection that the user returned to the pool inside a transaction is not used",
    async (_, isNew) => {
      const pool = new pg.Pool({ connectionString: server().url, max: 1 });
      if (!isNew) pool.on("connect", hideStatus);
      onTestFinished(() => pool.end());
      const leaked = await pool.connect();
      await leaked.query("begin");
      leaked.release();
      const client = adaptPostgresClient(pool);
      await expect(client.connect()).rejects.toThrow("returned inside a transaction");
      expect((await query(client, "select 1 as n")).rows).toEqual([{ n: 1 }]);
    },
  );

  test("a client with the option binary returns text, and no number that would be wrong", async () => {
    const pool = new pg.Pool({ connectionString: server().url, binary: true });
    onTestFinished(() => pool.end());
    const client = adaptPostgresClient(pool);
    expect((await query(client, "select 'é'::text as t")).rows).toEqual([{ t: "é" }]);
    await expect(query(client, "select $1::int4 as n", [200])).rejects.toThrow("option binary");
  });

  test("a timeout of the library closes the connection, since its statement may still run", async () => {
    const pool = new pg.Pool({ connectionString: server().url, max: 1, query_timeout: 200 });
    onTestFinished(() => pool.end());
    const client = adaptPostgresClient(pool);
    await expect(query(client, "select pg_sleep(30)")).rejects.toThrow("timeout");
    expect(pool.totalCount).toBe(0);
  });

  describe("statements that pg prepares under a name", () => {
    const PREPARED = "select count(*)::int as n from pg_prepared_statements where name like 'holdfast_%'";
    const connectTo = async (connectionString: string): Promise<SqlConnection> => {
      const pool = new pg.Pool({ connectionString, max: 1 });
      onTestFinished(() => pool.end());
      const connection = await adaptPostgresClient(pool).connect();
      onTestFinished(() => connection.release());
      return connection;
    };
    const countPrepared = async (connection: SqlConnection) => (await connection.query(PREPARED)).rows[0]?.n;
    const echo = async (connection: SqlConnection, text: string) =>
      (await connection.query("select $1::text as t", [text])).rows;

    test("are those with parameters, each once, and none in a transaction", async () => {
      const connection = await connectTo(server().url);
      for (const text of ["a", "b"]) expect(await echo(connection, text)).toEqual([{ t: text }]);
      expect(await countPrepared(connection)).toBe(1);
      await connection.query("begin");
      expect((await connection.query("select $1::int as n", [5])).rows).toEqual([{ n: 5 }]);
      await connection.query("rollback");
      expect(await countPrepared(connection)).toBe(1);
    });

    test("are given up behind a pooler whose sessions know the name already, or do not", async () => {
      const pooler = await startPgBouncer(server().port, { poolSize: 1 });
      onTestFinished(() => pooler.dispose());
      const [first, second] = [await connectTo(pooler.urlOf("postgres")), await connectTo(pooler.urlOf("postgres"))];
      expect(await echo(first, "a")).toEqual([{ t: "a" }]);
      expect(await echo(second, "b")).toEqual([{ t: "b" }]);
      await first.query("discard all");
      expect(await echo(first, "c")).toEqual([{ t: "c" }]);
      for (const connection of [first, second]) expect(await echo(connection, "d")).toEqual([{ t: "d" }]);
      expect(await countPrepared(first)).toBe(0);
    });
  });

  test("drivers that share a pool share one listener", () => {
    const pool = new pg.Pool({ connectionString: server().url });
    for (let count = 0; count < 20; count++) adaptPostgresClient(pool);
    expect(pool.listenerCount("error")).toBe(1);
  });

  test("the sql of a transaction of postgres.js is refused", async () => {
    const sql = postgres(server().url, { max: 1 });
    onTestFinished(() => sql.end());
    await sql.begin((transaction) => {
      expect(() => adaptPostgresClient(transaction)).toThrow("not that of a transaction");
    });
    expect(() => adaptPostgresClient(postgres({ transform: { row: { from: () => ({}) } } }))).toThrow("transform.row");
  });

  const URL_CLIENTS: Readonly<Record<string, (url: string, options: LoadOptions) => SqlClient | Promise<SqlClient>>> = {
    pg: loadPostgresClient,
    "postgres.js": openPostgresJsUrl,
  };

  describe.each(Object.entries(URL_CLIENTS))("a url, by %s", (library, open) => {
    const openClient = async (url: string, connectTimeoutMs = 5_000): Promise<SqlClient> => {
      const client = await open(url, { connectTimeoutMs });
      onTestFinished(() => client.close());
      return client;
    };

    test("makes a pool of at most four connections with a name", async () => {
      const client = await openClient(server().url);
      expect(client.library).toBe(library);
      await expectFourConnections(client);
      expect((await query(client, "select current_setting('application_name') as name")).rows).toEqual([
        { name: "holdfast" },
      ]);
    });

    test("its password is in no error", async () => {
      const url = server().url.replace("postgres@", `secretive_${library.length}:wr0ng-pw@`);
      await server().query(`create role secretive_${library.length} login password 'right'`);
      const refused = await openClient(`${url}?application_name=mine`);
      const error: unknown = await refused.connect().catch((failure: unknown) => failure);
      expect(String(error)).toContain("password authentication failed");
      expect(JSON.stringify([error, String(error)])).not.toContain("wr0ng-pw");
    });
  });

  test("postgres.js: connections of a url whose login is not answered give their places in the pool back", () =>
    expectSilentLoginsGivenUp(server().port, [0, 1], (port) =>
      openPostgresJsUrl(server().url.replace(`:${server().port}`, `:${port}`), { connectTimeoutMs: 300 }),
    ));
});

async function pidOf(connection: SqlConnection): Promise<unknown> {
  return (await connection.query("select pg_backend_pid() as pid")).rows[0]?.pid;
}
