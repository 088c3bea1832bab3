// fence() in transactions of Kysely, Drizzle, Knex, TypeORM, mariadb and callbacks of mysql2, on MariaDB.

import mariadb from "mariadb";
import { createConnection, createPool } from "mysql2";
import { beforeAll, onTestFinished, test } from "vitest";
import { loadInterop } from "../../support/interop.ts";
import { expectFenced } from "../../support/query-builder-scenarios.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

withMariaDb((server) => {
  let url: string;

  beforeAll(async () => {
    loadInterop("kysely");
    url = (await server().freshDatabase()).url;
  }, 180_000);

  test("Kysely and Drizzle", async () => {
    const pool = createPool({ uri: url });
    onTestFinished(() => pool.promise().end());
    const { Kysely, MysqlDialect } = loadInterop("kysely");
    const kysely = new Kysely({ dialect: new MysqlDialect({ pool }) });
    await expectFenced(kysely, "kysely", (work) => kysely.transaction().execute(work));
    const drizzle = loadInterop("drizzle-orm/mysql2").drizzle(pool);
    await expectFenced(drizzle, "drizzle", (work) => drizzle.transaction(work));
  });

  test("Knex", async () => {
    const db = loadInterop("knex")({ client: "mysql2", connection: url });
    onTestFinished(() => db.destroy());
    await expectFenced(db, "knex", (work) => db.transaction(work));
  });

  test("TypeORM", async () => {
    const { DataSource } = loadInterop("typeorm");
    const source = await new DataSource({ type: "mariadb", connectorPackage: "mysql2", url }).initialize();
    onTestFinished(() => source.destroy());
    await expectFenced(source, "typeorm", (work) => source.transaction(work));
  });

  test("mariadb", async () => {
    const connection = await mariadb.createConnection(url.replace("mysql:", "mariadb:"));
    onTestFinished(() => connection.end());
    await expectFenced(connection, "mariadb", async (work) => {
      await connection.beginTransaction();
      await work(connection).then(
        () => connection.commit(),
        async (error: unknown) => {
          await connection.rollback();
          throw error;
        },
      );
    });
  });

  test("mysql2 with callbacks", async () => {
    const connection = createConnection({ uri: url });
    onTestFinished(() => connection.destroy());
    const promised = connection.promise();
    await expectFenced(connection, "callbacks", async (work) => {
      await promised.beginTransaction();
      await work(connection).then(
        () => promised.commit(),
        async (error: unknown) => {
          await promised.rollback();
          throw error;
        },
      );
    });
  });
});
