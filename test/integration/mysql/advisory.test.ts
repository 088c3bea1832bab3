// Named locks of MariaDB as a store.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createPool as createMariadbPool } from "mariadb";
import { createPool } from "mysql2";
import { describe, expect, onTestFinished, test } from "vitest";
import { createAdvisoryDriver } from "../../../src/drivers/sql/advisory/driver.ts";
import { adaptMysqlClient } from "../../../src/drivers/sql/clients/detect.ts";
import type { DedicatedConnection, SqlClient } from "../../../src/drivers/sql/clients/types.ts";
import { createMysqlAdvisoryDialect } from "../../../src/drivers/sql/mysql/advisory-dialect.ts";
import type { MysqlAdvisoryOptions } from "../../../src/drivers/sql/mysql/driver.ts";
import { mysqlAdvisory } from "../../../src/drivers/sql/mysql/driver.ts";
import type { Locks } from "../../../src/index.ts";
import { connect, createLocks } from "../../../src/index.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { registerAdvisoryTests } from "../../support/stores/advisory-tests.ts";
import { readHolder, readLockWaiters } from "../../support/stores/mysql-advisory.ts";
import type { TestDatabase } from "../../support/stores/sql-database.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

/** The user of the drivers, whose connections the server counts. */
const USER = "advisory";

withMariaDb((server) => {
  const dialect = createMysqlAdvisoryDialect();
  const nameOf = (key: string): string => String(dialect.toLock(key).values[0]);
  let hasUser = false;

  /** With the same rights as a program: none on any table. */
  async function userUrl(database: TestDatabase): Promise<string> {
    if (!hasUser) await database.query(`create user if not exists ${USER}@'127.0.0.1' identified by 'secret'`);
    hasUser = true;
    return database.urlOf(USER, "secret").replace(/\/[^/]*$/, "/");
  }

  const listSessions = async ({ query }: TestDatabase): Promise<string[]> => {
    const rows = await query(`select id from information_schema.processlist where user = '${USER}'`);
    return rows.map(({ id }) => String(id));
  };

  describe("as every database", () => {
    /** The connections of each driver. */
    const connectionsOf = new WeakMap<Driver, DedicatedConnection[]>();
    registerAdvisoryTests({
      server,
      poolConnections: 1,
      driver(database, options) {
        const connections: DedicatedConnection[] = [];
        const create = async (): Promise<SqlClient> => {
          const client = adaptMysqlClient(createPool({ uri: await userUrl(database) }));
          const connectDedicated = async () => {
            const connection = (await client.connectDedicated?.()) as DedicatedConnection;
            connections.push(connection);
            return connection;
          };
          return { ...client, connectDedicated };
        };
        const driver = createAdvisoryDriver(dialect, { create, isOwned: true, existing: null }, options);
        connectionsOf.set(driver, connections);
        return driver;
      },
      lockUrl: (database) => userUrl(database).then((url) => url.replace("mysql:", "mariadb+advisory:")),
      sessions: listSessions,
      holder: ({ query }, key) => readHolder(query, nameOf(key)),
      waiters: ({ query }) => readLockWaiters(query),
      kill: async ({ query }, session) => void (await query(`kill ${Number(session)}`)),
      async unlockBehindIts(driver) {
        for (const connection of connectionsOf.get(driver) ?? [])
          await connection.query("do release_all_locks()").catch(() => undefined);
      },
    });
  });

  const openLocks = async (options: MysqlAdvisoryOptions = {}): Promise<Locks> => {
    const pool = createPool({ uri: await userUrl(await server().freshDatabase()) });
    onTestFinished(() => new Promise((resolve) => void pool.end(() => resolve())));
    const locks = createLocks(mysqlAdvisory(pool, options));
    onTestFinished(() => locks.close());
    return locks;
  };

  test("keyToName: a lock of the mariadb program excludes us, and ours excludes it", async () => {
    const locks = await openLocks({ keyToName: () => "Nightly Report" });
    const { port } = server();
    const program = spawn("mariadb", ["--no-defaults", "-h127.0.0.1", `-P${port}`, "-uroot", "-N", "-B", "-n"], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    onTestFinished(async () => {
      program.stdin.end();
      await once(program, "exit");
    });
    let output = "";
    program.stdout.on("data", (data) => {
      output += data;
    });
    const run = async (text: string): Promise<string> => {
      output = "";
      program.stdin.write(`${text};\n`);
      await until(() => output.endsWith("\n"), { within: 5_000, what: `the answer to ${text}` });
      return output.trim();
    };
    await locks.using("nightly", async () => {
      expect(await run("select get_lock('Nightly Report', 0)")).toBe("0");
    });
    expect(await run("select get_lock('Nightly Report', 0)")).toBe("1");
    expect(await locks.tryAcquire("nightly")).toBeNull();
    const waits = locks.acquire("nightly");
    expect(await run("select release_lock('Nightly Report')")).toBe("1");
    expect(await (await waits).release()).toBe(true);
  });

  test("a session whose clock was set does not make the server look like one that was started again", async () => {
    const readUptime = async (): Promise<number> =>
      Number((await server().query("show global status like 'Uptime'"))[0]?.Value);
    await until(async () => (await readUptime()) >= 3, { within: 10_000, what: "three seconds of the server" });
    const pool = createPool({ uri: server().url });
    onTestFinished(() => pool.promise().end());
    const connection = await adaptMysqlClient(pool).connect();
    const { rows } = await connection.query("select connection_id() as id");
    await connection.query("set timestamp = unix_timestamp() - ?", [await readUptime()]);
    // the session is in use, and may have the locks of its client
    expect(await dialect.endSession(connection, String(rows[0]?.id), 3_000)).toBe(false);
    connection.release(true);
  });

  test("names that differ in case only are one lock within a process, whatever the server says", async () => {
    const locks = await openLocks({ keyToName: (key) => key });
    const lock = await locks.acquire("Key");
    expect(await locks.tryAcquire("key")).toBeNull();
    await lock.release();
  });

  test("a keyToName that returns no name is a typed error", async () => {
    for (const name of ["", " a", "a ", "\u00e9", "x".repeat(65), 42 as unknown as string]) {
      const locks = await openLocks({ keyToName: () => name });
      await expect(locks.acquire("key")).rejects.toThrow(/keyToName must return/);
    }
    const longest = await openLocks({ keyToName: () => "x".repeat(64) });
    await longest.using("key", () => undefined);
  });

  test("readers are refused before anything is sent", async () => {
    const locks = await openLocks();
    await expect(locks.rw("key").read.acquire()).rejects.toMatchObject({ code: "LOCK_UNSUPPORTED" });
  });

  test("a read-only server is refused", async () => {
    await server().query("set global read_only = 1");
    try {
      const locks = await openLocks();
      await expect(locks.acquire("key")).rejects.toThrow(/read-only/);
    } finally {
      await server().query("set global read_only = 0");
    }
  });

  test("the package mariadb works by url, and its pools are refused", async () => {
    const url = await userUrl(await server().freshDatabase());
    const pool = createMariadbPool({ host: "127.0.0.1", port: server().port, user: USER, password: "secret" });
    onTestFinished(() => pool.end());
    expect(() => mysqlAdvisory(pool)).toThrow(/must be a pool that shows its settings/);
    const locks = await connect(`${url.replace("mysql:", "mysql+advisory:")}?sessionMs=5000&maxWaitConnections=2`);
    onTestFinished(() => locks.close());
    expect(locks.traits).toMatchObject({ lease: { sessionMs: 5_000 }, permits: "one", list: "own" });
    await locks.using("key", () => undefined);
  });

  test("a limit on the time of statements ends no wait", async () => {
    const pool = createPool({ uri: await userUrl(await server().freshDatabase()) });
    onTestFinished(() => new Promise((resolve) => void pool.end(() => resolve())));
    await server().query("set global max_statement_time = 0.1");
    try {
      const [one, other] = [createLocks(mysqlAdvisory(pool)), createLocks(mysqlAdvisory(pool))];
      const lock = await one.acquire("key");
      const waits = other.acquire("key");
      const startedAt = performance.now();
      await until(() => performance.now() - startedAt > 300, { within: 2_000, what: "several limits to pass" });
      expect(await readLockWaiters(server().query)).toHaveLength(1);
      await lock.release();
      await (await waits).release();
      await Promise.all([one.close(), other.close()]);
    } finally {
      await server().query("set global max_statement_time = 0");
    }
  });

  test("wrong arguments are typed errors", () => {
    expect(() => mysqlAdvisory({})).toThrow(TypeError);
    for (const name of ["sessionMs", "maxWaitConnections", "keyToName", "silenceWarnings", "database"]) {
      expect(() => mysqlAdvisory(() => ({}), { [name]: -1 })).toThrow(name);
    }
  });

  test("the diagnosis names version, role, cluster and connections", async () => {
    const pool = createPool({ uri: await userUrl(await server().freshDatabase()) });
    onTestFinished(() => new Promise((resolve) => void pool.end(() => resolve())));
    const driver = mysqlAdvisory(pool);
    await driver.open(NO_EVENTS);
    const checks = (await driver.diagnose?.()) ?? [];
    expect(checks.map(({ name, status }) => `${name} ${status}`)).toEqual([
      "version ok",
      "role ok",
      "cluster ok",
      "connections ok",
    ]);
    await driver.close();
  });
});
