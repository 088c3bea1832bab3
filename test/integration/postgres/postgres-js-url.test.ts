// What postgres.js needs where it is the library of a url: its own pool neither survives terminations nor comes back soon.

import { expect, onTestFinished, test } from "vitest";
import { createSqlDriver } from "../../../src/drivers/sql/driver.ts";
import { createPostgresDialect } from "../../../src/drivers/sql/postgres/dialect.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";
import { openPostgresJsUrl } from "../../support/stores/url-clients.ts";

const TERMINATE = `select pg_terminate_backend(pid) from pg_stat_activity
  where datname = current_database() and pid <> pg_backend_pid()`;
const TERMINATIONS = process.env.HOLDFAST_LONG === "1" ? 200 : 30;

withPostgres((server) => {
  const openLocks = (url: string): Locks => {
    const options = { silenceWarnings: ["durability"] } as const;
    const dialect = createPostgresDialect(async () => openPostgresJsUrl(url), true, options);
    const locks = createLocks(createSqlDriver(dialect, options), { order: "strict" });
    onTestFinished(() => locks.close());
    return locks;
  };

  test("connections that the server ends while they begin are no error that nobody handles", async () => {
    const database = await server().freshDatabase();
    const locks = openLocks(database.url);
    const unhandled: unknown[] = [];
    const listener = (error: unknown): void => void unhandled.push(error);
    process.on("unhandledRejection", listener);
    onTestFinished(() => void process.off("unhandledRejection", listener));
    await locks.using("key", () => undefined);
    let isStopped = false;
    const callers = Array.from({ length: 8 }, async (_, index) => {
      while (!isStopped) await locks.using(`key ${index}`, () => undefined).catch(() => undefined);
    });
    for (let count = 0; count < TERMINATIONS; count++) {
      await database.query(TERMINATE);
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 20));
    }
    isStopped = true;
    await Promise.all(callers);
    // no connection of the pool is missing afterwards
    await Promise.all(Array.from({ length: 8 }, (_, index) => locks.using(`key ${index}`, () => undefined)));
    expect(unhandled).toEqual([]);
  });

  test("after an outage of the server, of which the connections have heard, the next lock is granted within a second", async () => {
    const database = await server().freshDatabase();
    const locks = openLocks(database.url);
    // all connections of the pool
    await Promise.all(Array.from({ length: 8 }, (_, index) => locks.using(`key ${index}`, () => undefined)));
    await server().stop();
    const stoppedAt = performance.now();
    let failures = 0;
    while (performance.now() - stoppedAt < 3_000) {
      await locks.using("key", { wait: "500ms" }, () => undefined).catch(() => failures++);
    }
    expect(failures).toBeGreaterThan(2);
    await server().start();
    const startedAt = performance.now();
    await locks.using("key", () => undefined);
    expect(performance.now() - startedAt).toBeLessThan(1_000);
  });
});
