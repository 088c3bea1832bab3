// Rows with a version column by query builders, and both fence() and rows by Prisma, on PostgreSQL.

import pg from "pg";
import postgresJs from "postgres";
import { afterAll, beforeAll, expect, test } from "vitest";
import { fence } from "../../../src/fencing/index.ts";
import { createTestLock } from "../../support/fence-scenarios.ts";
import { loadInterop, loadPrisma } from "../../support/interop.ts";
import { expectFenced } from "../../support/query-builder-scenarios.ts";
import type { TestDatabase } from "../../support/stores/sql-database.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";
import { testVersionedRow } from "../../support/versioned-row-tests.ts";

withPostgres((server) => {
  let database: TestDatabase;
  let pool: pg.Pool;
  let admin: pg.Client;

  beforeAll(async () => {
    loadInterop("kysely");
    database = await server().freshDatabase();
    pool = new pg.Pool({ connectionString: database.url, max: 4 });
    admin = new pg.Client(database.url);
    await admin.connect();
  }, 180_000);

  afterAll(async () => {
    await Promise.all([pool?.end(), admin?.end()]);
  });

  const query: TestDatabase["query"] = async (text) => (await admin.query(text)).rows;

  testVersionedRow(
    "Kysely",
    () => {
      const { Kysely, PostgresDialect, CamelCasePlugin } = loadInterop("kysely");
      const handle = new Kysely({ dialect: new PostgresDialect({ pool }), plugins: [new CamelCasePlugin()] });
      return { handle, close: () => undefined };
    },
    query,
  );
  testVersionedRow(
    "Drizzle on pg",
    () => ({ handle: loadInterop("drizzle-orm/node-postgres").drizzle(pool), close: () => undefined }),
    query,
  );
  testVersionedRow(
    "Drizzle on postgres.js",
    () => {
      const sql = postgresJs(database.url, { max: 4, onnotice: () => undefined });
      return { handle: loadInterop("drizzle-orm/postgres-js").drizzle(sql), close: () => sql.end() };
    },
    query,
  );
  testVersionedRow(
    "Knex",
    () => {
      const handle = loadInterop("knex")({ client: "pg", connection: database.url, pool: { max: 4 } });
      return { handle, close: () => handle.destroy() };
    },
    query,
  );
  testVersionedRow(
    "TypeORM",
    async () => {
      const { DataSource } = loadInterop("typeorm");
      const handle = await new DataSource({ type: "postgres", url: database.url }).initialize();
      return { handle, close: () => handle.destroy() };
    },
    query,
  );

  const prisma = loadPrisma("postgresql", "@prisma/adapter-pg");
  if (typeof prisma === "string") {
    test.skip(prisma);
    return;
  }
  const openPrisma = () => {
    const { PrismaPg } = prisma.adapters;
    return new prisma.PrismaClient({ adapter: new PrismaPg({ connectionString: database.url, max: 4 }) });
  };

  testVersionedRow(
    "Prisma",
    () => {
      const handle = openPrisma();
      return { handle, close: () => handle.$disconnect() };
    },
    query,
  );

  test("Prisma: the client of a transaction", async () => {
    const client = openPrisma();
    try {
      await expectFenced(client, "prisma", (work) => client.$transaction(work));
      await expect(fence(client, createTestLock(99), { prefix: "prisma" })).rejects.toThrow(/inside a transaction/);
    } finally {
      await client.$disconnect();
    }
  });
});
