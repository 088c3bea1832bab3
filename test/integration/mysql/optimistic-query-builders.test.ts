// Rows with a version column by query builders, and both fence() and rows by Prisma, on MariaDB.

import { createPool } from "mysql2";
import { afterAll, beforeAll, test } from "vitest";
import { loadInterop, loadPrisma } from "../../support/interop.ts";
import { expectFenced } from "../../support/query-builder-scenarios.ts";
import type { TestDatabase } from "../../support/stores/sql-database.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";
import { testVersionedRow } from "../../support/versioned-row-tests.ts";

withMariaDb((server) => {
  let database: TestDatabase;
  let pool: ReturnType<typeof createPool>;

  beforeAll(async () => {
    loadInterop("kysely");
    database = await server().freshDatabase();
    pool = createPool({ uri: database.url, connectionLimit: 4 });
  }, 180_000);

  afterAll(() => pool?.promise().end());

  const query: TestDatabase["query"] = (text, values) => database.query(text, values);
  const keepOpen = (): void => undefined;

  testVersionedRow(
    "Kysely",
    () => {
      const { Kysely, MysqlDialect } = loadInterop("kysely");
      return { handle: new Kysely({ dialect: new MysqlDialect({ pool }) }), close: keepOpen };
    },
    query,
  );
  testVersionedRow(
    "Drizzle",
    () => ({ handle: loadInterop("drizzle-orm/mysql2").drizzle(pool), close: keepOpen }),
    query,
  );
  testVersionedRow(
    "Knex",
    () => {
      const handle = loadInterop("knex")({ client: "mysql2", connection: database.url, pool: { max: 4 } });
      return { handle, close: () => handle.destroy() };
    },
    query,
  );
  testVersionedRow(
    "TypeORM",
    async () => {
      const { DataSource } = loadInterop("typeorm");
      const options = { type: "mariadb", connectorPackage: "mysql2", url: database.url };
      const handle = await new DataSource(options).initialize();
      return { handle, close: () => handle.destroy() };
    },
    query,
  );

  const prisma = loadPrisma("mysql", "@prisma/adapter-mariadb");
  if (typeof prisma === "string") {
    test.skip(prisma);
    return;
  }
  const openPrisma = () => {
    const { PrismaMariaDb } = prisma.adapters;
    const { hostname: host, port, pathname } = new URL(database.url);
    const settings = { host, port: Number(port), user: "root", database: pathname.slice(1), connectionLimit: 4 };
    return new prisma.PrismaClient({ adapter: new PrismaMariaDb(settings) });
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
    } finally {
      await client.$disconnect();
    }
  });
});
