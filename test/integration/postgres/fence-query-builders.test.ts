// fence() in transactions of Kysely, Drizzle, Knex, TypeORM and postgres.js, and rows with a version over them, on PostgreSQL.

import { randomUUID } from "node:crypto";
import pg from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { createFenceTable, fence } from "../../../src/fencing/index.ts";
import { optimistic, versionedRow } from "../../../src/optimistic/index.ts";
import { until } from "../../../src/testing/until.ts";
import { createShortLock, createTestLock } from "../../support/fence-scenarios.ts";
import type { InteropModule } from "../../support/interop.ts";
import { loadInterop } from "../../support/interop.ts";
import { expectFenced } from "../../support/query-builder-scenarios.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

withPostgres((server) => {
  let url: string;
  let pool: InteropModule;

  beforeAll(async () => {
    loadInterop("kysely");
    url = (await server().freshDatabase()).url;
    pool = new pg.Pool({ connectionString: url });
    await pool.query(`create table versioned (
      id uuid primary key, body text, data jsonb, at timestamptz, amount numeric, bytes bytea, version bigint not null default 0
    )`);
  }, 180_000);

  /** Columns whose types no text has. */
  async function expectVersionedRow(handle: unknown): Promise<void> {
    const id = randomUUID();
    await pool.query("insert into versioned (id) values ($1)", [id]);
    const body = `a'b\\c"\`$1 ? :x ü 😀 \u{10ffff}`;
    const changes = {
      body,
      data: '{"a": "\\\\"}',
      at: "2026-01-02 03:04:05+00",
      amount: "12.50",
      bytes: Buffer.from([0, 39, 255]),
    };
    const row = versionedRow<Record<string, unknown>>(handle, { table: "versioned", key: { id } });
    for (let retries = 0; retries < 2; retries++) {
      expect(await optimistic(row, () => changes)).toMatchObject({ status: "written", retries: 0 });
    }
    const { rows } = await pool.query(
      "select body, data ->> 'a' as data, extract(epoch from at)::int as at, amount, bytes, version from versioned where id = $1",
      [id],
    );
    expect(rows).toEqual([
      { body, data: "\\", at: 1_767_323_045, amount: "12.50", bytes: changes.bytes, version: "2" },
    ]);
  }

  afterAll(() => pool?.end());

  test("Kysely", async () => {
    const { Kysely, PostgresDialect, CamelCasePlugin } = loadInterop("kysely");
    const db = new Kysely({ dialect: new PostgresDialect({ pool }), plugins: [new CamelCasePlugin()] });
    await expectVersionedRow(db);
    await expectFenced(db, "kysely", (work) => db.transaction().execute(work));
    await expect(fence(db, createTestLock(99), { prefix: "kysely" })).rejects.toThrow(/inside a transaction/);
  });

  test("Drizzle on pg", async () => {
    const db = loadInterop("drizzle-orm/node-postgres").drizzle(pool);
    await expectVersionedRow(db);
    await expectFenced(db, "drizzle_pg", (work) => db.transaction(work));
    await expect(fence(db, createTestLock(99), { prefix: "drizzle_pg" })).rejects.toThrow(/inside a transaction/);
  });

  test("Drizzle on pg: a session that the database ends for its idle transaction is an error of that, and no unhandled one", async () => {
    await createFenceTable(pool);
    const db = loadInterop("drizzle-orm/node-postgres").drizzle(pool);
    const work = db.transaction(async (tx: InteropModule) => {
      const { rows } = await tx.execute("select pg_backend_pid() as pid");
      await fence(tx, createShortLock(500, 100));
      const query = "select from pg_stat_activity where pid = $1";
      await until(async () => (await pool.query(query, [rows[0].pid])).rowCount === 0, {
        within: 10_000,
        what: "the end of the session",
      });
      await tx.execute("select 1");
    });
    await expect(work).rejects.toThrow();
  });

  test("postgres.js, and Drizzle on it", async () => {
    const sql = postgres(url, { onnotice: () => undefined, fetch_types: false, transform: postgres.camel });
    onTestFinished(() => sql.end());
    await expectVersionedRow(sql);
    await expectFenced(sql, "postgresjs", (work) => sql.begin(work));
    const db = loadInterop("drizzle-orm/postgres-js").drizzle(sql);
    await expectVersionedRow(db);
    await expectFenced(db, "drizzle_js", (work) => db.transaction(work));
    const reserved = await sql.reserve();
    await expect(fence(reserved, createTestLock(99), { prefix: "postgresjs" })).rejects.toThrow(/inside a transaction/);
    reserved.release();
  });

  test("Knex", async () => {
    const db = loadInterop("knex")({ client: "pg", connection: url });
    onTestFinished(() => db.destroy());
    await expectVersionedRow(db);
    await expectFenced(db, "knex", (work) => db.transaction(work));
    await expect(fence(db, createTestLock(99), { prefix: "knex" })).rejects.toThrow(/inside a transaction/);
  });

  test("TypeORM: the entity manager and the query runner", async () => {
    const { DataSource } = loadInterop("typeorm");
    const source = await new DataSource({ type: "postgres", url }).initialize();
    onTestFinished(() => source.destroy());
    await expectVersionedRow(source);
    await expectFenced(source, "typeorm_manager", (work) => source.transaction(work));
    await expectFenced(source, "typeorm_runner", async (work) => {
      const runner = source.createQueryRunner();
      await runner.startTransaction();
      try {
        await work(runner);
        await runner.commitTransaction();
      } catch (error) {
        await runner.rollbackTransaction();
        throw error;
      } finally {
        await runner.release();
      }
    });
    await expect(fence(source, createTestLock(99), { prefix: "typeorm_runner" })).rejects.toThrow(
      /inside a transaction/,
    );
  });
});
