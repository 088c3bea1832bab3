// Advisory locks of PostgreSQL as a store.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { Client, Pool } from "pg";
import postgresJs from "postgres";
import { describe, expect, onTestFinished, test } from "vitest";
import { hashKey } from "../../../src/drivers/sql/advisory/lock-number.ts";
import type { PostgresAdvisoryOptions } from "../../../src/drivers/sql/postgres/driver.ts";
import { postgresAdvisory } from "../../../src/drivers/sql/postgres/driver.ts";
import { lockInTransaction } from "../../../src/fencing/index.ts";
import { connect, createLocks } from "../../../src/index.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { cliSandbox, PROGRAM } from "../../support/cli-sandbox.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { registerAdvisoryTests } from "../../support/stores/advisory-tests.ts";
import { startPgBouncer } from "../../support/stores/pgbouncer.ts";
import { readAdvisoryLocks } from "../../support/stores/postgres-advisory.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const NAME = "advisory test";
const sandbox = cliSandbox();

withPostgres((server) => {
  /** The connections of each driver. */
  const clientsOf = new WeakMap<Driver, Client[]>();

  const lockName = (number: bigint): string => `${(number >> 32n) & 0xffffffffn}:${number & 0xffffffffn}:1`;

  describe("as every database", () => {
    registerAdvisoryTests({
      server,
      poolConnections: 0,
      driver({ url }, options) {
        const clients: Client[] = [];
        class KnownClient extends Client {
          constructor(clientOptions: ConstructorParameters<typeof Client>[0]) {
            super(clientOptions);
            clients.push(this);
          }
        }
        const settings = { connectionString: url, application_name: NAME, Client: KnownClient };
        const driver = postgresAdvisory(() => new Pool(settings), options);
        clientsOf.set(driver, clients);
        return driver;
      },
      lockUrl: ({ url }) => url.replace("postgres:", "postgres+advisory:"),
      async sessions({ query }) {
        const rows = await query("select pid from pg_stat_activity where application_name = $1", [NAME]);
        return rows.map(({ pid }) => String(pid));
      },
      async holder({ query }, key) {
        const name = lockName(hashKey(key));
        const held = (await readAdvisoryLocks(query)).find((lock) => lock.isGranted && lock.name === name);
        return held === undefined ? null : String(held.pid);
      },
      waiters: async ({ query }) =>
        (await readAdvisoryLocks(query)).filter(({ isGranted }) => !isGranted).map(({ pid }) => String(pid)),
      kill: async ({ query }, session) => void (await query(`select pg_terminate_backend(${Number(session)})`)),
      async unlockBehindIts(driver) {
        for (const client of clientsOf.get(driver) ?? [])
          await client.query("select pg_advisory_unlock_all()").catch(() => undefined);
      },
    });
  });

  const openDriver = async (url: string, options: PostgresAdvisoryOptions = {}) => {
    const pool = new Pool({ connectionString: url });
    const driver = postgresAdvisory(pool, options);
    onTestFinished(() => pool.end());
    await driver.open(NO_EVENTS);
    onTestFinished(() => driver.close());
    return driver;
  };

  test.each([
    { form: "a number", lock: 42n, call: "42" },
    { form: "a pair", lock: [4, -2] as const, call: "4, -2" },
  ])("keyToLock: $form excludes psql, and psql excludes us", async ({ lock, call }) => {
    const { url } = await server().freshDatabase();
    const pool = new Pool({ connectionString: url });
    onTestFinished(() => pool.end());
    const locks = createLocks(postgresAdvisory(pool, { keyToLock: () => lock }));
    onTestFinished(() => locks.close());
    const psql = spawn("psql", ["-X", "-q", "-t", "-A", url], { stdio: ["pipe", "pipe", "inherit"] });
    onTestFinished(async () => {
      psql.stdin.end();
      await once(psql, "exit");
    });
    let output = "";
    psql.stdout.on("data", (data) => {
      output += data;
    });
    const runInPsql = async (text: string): Promise<string> => {
      output = "";
      psql.stdin.write(`${text};\n`);
      await until(() => output.endsWith("\n"), { within: 5_000, what: `the answer to ${text}` });
      return output.trim();
    };
    await locks.using("nightly", async () => {
      expect(await runInPsql(`select pg_try_advisory_lock(${call})`)).toBe("f");
    });
    expect(await runInPsql(`select pg_try_advisory_lock(${call})`)).toBe("t");
    expect(await locks.tryAcquire("nightly")).toBeNull();
    const waits = locks.acquire("nightly");
    expect(await runInPsql(`select pg_advisory_unlock(${call})`)).toBe("t");
    expect(await (await waits).release()).toBe(true);
  });

  test("two keys of one number exclude each other in one process", async () => {
    const { url } = await server().freshDatabase();
    const pool = new Pool({ connectionString: url });
    onTestFinished(() => pool.end());
    const locks = createLocks(postgresAdvisory(pool, { keyToLock: () => 1n }));
    onTestFinished(() => locks.close());
    const lock = await locks.acquire("a");
    expect(await locks.tryAcquire("b")).toBeNull();
    await lock.release();
    await locks.using("b", () => undefined);
  });

  test("a keyToLock that fails or returns no lock is a typed error, and nothing is sent", async () => {
    const { url } = await server().freshDatabase();
    for (const keyToLock of [() => 1 as unknown as bigint, () => 2n ** 63n, () => JSON.parse("{")]) {
      const pool = new Pool({ connectionString: url });
      const locks = createLocks(postgresAdvisory(pool, { keyToLock }));
      await expect(locks.acquire("a")).rejects.toThrow(/keyToLock/);
      await locks.close();
      await pool.end();
    }
  });

  test("a pooler in transaction mode is refused, before it has passed a setting on; one in session mode is not", async () => {
    const database = await server().freshDatabase();
    for (const mode of ["transaction", "statement", "session"] as const) {
      const bouncer = await startPgBouncer(server().port, { mode });
      try {
        const pool = new Pool({ connectionString: bouncer.urlOf(database.name) });
        const driver = postgresAdvisory(pool, {});
        if (mode === "session") {
          await driver.open(NO_EVENTS);
          expect(
            await database.query("select 1 as n from pg_stat_activity where datname = $1", [database.name]),
          ).not.toEqual([]);
        } else {
          await expect(driver.open(NO_EVENTS)).rejects.toThrow(/pooler in transaction mode/);
          const { rows } = await pool.query("show idle_session_timeout");
          expect(rows).toEqual([{ idle_session_timeout: "0" }]);
        }
        await driver.close();
        await pool.end();
      } finally {
        await bouncer.dispose();
      }
    }
  });

  test("a pooler that has one session for all of the connections is named as a cause", async () => {
    const database = await server().freshDatabase();
    const bouncer = await startPgBouncer(server().port, { mode: "session", poolSize: 1 });
    const pool = new Pool({ connectionString: bouncer.urlOf(database.name) });
    try {
      const driver = postgresAdvisory(pool, { connectTimeout: 1_000 });
      await expect(driver.open(NO_EVENTS)).rejects.toThrow(/a pooler that has no second connection for this process/);
      await driver.close();
    } finally {
      await bouncer.dispose();
      await pool.end();
    }
  });

  test("a wait survives the limits of the user's session", async () => {
    const database = await server().freshDatabase();
    await database.query(`alter database ${database.name} set lock_timeout = 100`);
    await database.query(`alter database ${database.name} set statement_timeout = 100`);
    const [first, second] = [await openDriver(database.url), await openDriver(database.url)];
    const [one, other] = [createLocks(first), createLocks(second)];
    const lock = await one.acquire("key");
    const waits = other.acquire("key");
    const startedAt = performance.now();
    await until(() => performance.now() - startedAt > 400, { within: 2_000, what: "several limits to pass" });
    const waiting = (await readAdvisoryLocks(database.query)).filter(({ isGranted }) => !isGranted);
    expect(waiting).toHaveLength(1);
    await lock.release();
    await (await waits).release();
  });

  test("a lock of a transaction takes part, and the server says who has the lock of a key", async () => {
    const database = await server().freshDatabase();
    const locks = createLocks(await openDriver(database.url));
    const client = new Client(database.url);
    await client.connect();
    onTestFinished(() => client.end());
    // both signs of the number
    for (const key of ["invoice-42", "invoice-43", "invoice-44", "invoice-45"]) {
      const lock = await locks.acquire(key);
      await client.query("begin");
      expect(await lockInTransaction(client, key, { wait: false })).toBe(false);
      const { rows } = await client.query(
        `select granted from pg_locks join pg_stat_activity using (pid) where locktype = 'advisory' and objsubid = 1
           and (classid::bigint << 32 | objid::bigint) = ('x' || left(encode(sha256('${key}'), 'hex'), 16))::bit(64)::bigint`,
      );
      expect(rows).toEqual([{ granted: true }]);
      await client.query("rollback");
      await lock.release();
      await client.query("begin");
      expect(await lockInTransaction(client, key, { wait: false })).toBe(true);
      expect(await locks.tryAcquire(key)).toBeNull();
      await client.query("commit");
    }
  });

  test("the command line locks by url, and says what it cannot list", async () => {
    const database = await server().freshDatabase();
    const env = { HOLDFAST_URL: database.url.replace("postgres:", "postgres+advisory:") };
    // the command does not inherit the user of the url
    const inner = `${process.execPath} ${PROGRAM} run --url ${env.HOLDFAST_URL} job -- true`;
    expect(await sandbox.run(["run", "job", "--", "sh", "-c", "echo $HOLDFAST_KEYS"], { env })).toMatchObject({
      code: 0,
    });
    // it would wait for its own outer run for ever
    const nested = await sandbox.run(["run", "job", "--", "sh", "-c", inner], { env });
    expect(nested).toMatchObject({ code: 121, err: expect.stringContaining("held by an outer run") });
    const list = await sandbox.run(["ls"], { env });
    expect(list).toMatchObject({
      code: 64,
      err: expect.stringMatching(/lists no locks: .*; on PostgreSQL doctor counts them/),
    });
    const doctor = await sandbox.run(["doctor"], { env });
    expect(doctor.out).toContain("0 advisory locks held");
    expect(doctor.code).toBe(0);
  });

  test("postgres.js and a url work alike", async () => {
    const database = await server().freshDatabase();
    const sql = postgresJs(database.url, { max: 1, onnotice: () => undefined });
    onTestFinished(() => sql.end({ timeout: 1 }));
    const one = createLocks(postgresAdvisory(sql));
    onTestFinished(() => one.close());
    const other = await connect(`${database.url.replace("postgres:", "postgresql+advisory:")}?sessionMs=5000`);
    onTestFinished(() => other.close());
    expect(other.traits?.lease).toEqual({ claim: false, sessionMs: 5_000 });
    const lock = await one.acquire("key");
    const waits = other.acquire("key");
    await until(async () => (await readAdvisoryLocks(database.query)).length === 2, {
      within: 5_000,
      what: "a waiter",
    });
    expect(await lock.release()).toBe(true);
    const second = await waits;
    const back = one.acquire("key");
    await until(async () => (await readAdvisoryLocks(database.query)).length === 2, {
      within: 5_000,
      what: "a waiter",
    });
    expect(await second.release()).toBe(true);
    expect(await (await back).release()).toBe(true);
  });

  test("wrong arguments are typed errors", async () => {
    expect(() => postgresAdvisory({})).toThrow(TypeError);
    expect(() => postgresAdvisory(new Client(server().url))).toThrow(/must be a pool/);
    const pool = new Pool({ connectionString: server().url });
    for (const [name, value] of [
      ["sessionMs", 999],
      ["maxWaitConnections", 0],
      ["keyToLock", 42n],
      ["silenceWarnings", ["unknown"]],
      ["schema", "public"],
    ] as const) {
      expect(() => postgresAdvisory(pool, { [name]: value })).toThrow(name);
    }
    await pool.end();
    await expect(connect("postgres+advisory://127.0.0.1/x?sessionMs=1e4")).rejects.toThrow(/sessionMs/);
  });

  test("the diagnosis counts the locks, and says what frees those of a stopped process", async () => {
    const database = await server().freshDatabase();
    const driver = await openDriver(database.url, { sessionMs: 7_000 });
    const checks = (await driver.diagnose?.()) ?? [];
    expect(checks.map(({ name, status }) => `${name} ${status}`)).toEqual([
      "version ok",
      "role ok",
      "lease ok",
      "connections ok",
      "locks ok",
    ]);
    expect(checks.find(({ name }) => name === "lease")?.message).toContain("7s");
  });
});
