// Other code returns connections to a pool inside a transaction, or as another user: a lock is granted on a clean one, and to one client only.

import { Client, Pool } from "pg";
import postgresJs from "postgres";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { PostgresClient } from "../../../src/drivers/sql/postgres/driver.ts";
import { postgres } from "../../../src/drivers/sql/postgres/driver.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const TRANSACTIONS = ["begin", "begin; select 1/0", "begin isolation level serializable read only"];

interface SharedPool {
  /** What the driver gets. */
  readonly client: PostgresClient;
  /** Runs it on every connection of the pool, as other code. */
  runOnAll(text: string): Promise<void>;
}

withPostgres((server) => {
  let fixture: PostgresFixture;
  let other: Locks;
  beforeAll(async () => {
    fixture = await createPostgresFixture(server());
    other = fixture.locks();
    await fixture.database.query("create role nobody_at_all");
    await other.using("first use", () => undefined);
  });
  afterAll(() => fixture.close());

  const POOLS: Readonly<Record<string, (max: number) => SharedPool>> = {
    pg(max) {
      const pool = new Pool({ connectionString: fixture.database.url, max });
      onTestFinished(() => pool.end());
      return {
        client: pool,
        async runOnAll(text) {
          const clients = await Promise.all(Array.from({ length: max }, () => pool.connect()));
          for (const client of clients) await client.query(text).catch(() => undefined);
          for (const client of clients) client.release();
        },
      };
    },
    "postgres.js"(max) {
      const sql = postgresJs(fixture.database.url, { max, onnotice: () => undefined });
      onTestFinished(() => sql.end());
      return {
        client: sql,
        async runOnAll(text) {
          const clients = await Promise.all(Array.from({ length: max }, () => sql.reserve()));
          for (const client of clients) await client.unsafe(text).catch(() => undefined);
          for (const client of clients) client.release();
        },
      };
    },
  };
  const createLocksOn = (client: PostgresClient): Locks => {
    const locks = createLocks(postgres(client, { silenceWarnings: ["durability", "push"] }));
    onTestFinished(() => locks.close());
    return locks;
  };

  describe.each(Object.entries(POOLS))("%s", (_, createPool) => {
    describe.each([1, 2])("a pool of %i", (max) => {
      test.each([...TRANSACTIONS, "set session authorization nobody_at_all"])("%s", async (text) => {
        const pool = createPool(max);
        const locks = createLocksOn(pool.client);
        await locks.using("key", () => undefined);
        for (let round = 0; round < 2; round++) {
          await pool.runOnAll(text);
          const lock = await locks.acquire("key", { wait: "5s" });
          await pool.runOnAll("rollback");
          expect(await other.tryAcquire("key"), "after the rollback of other code").toBe(null);
          await pool.runOnAll(text);
          lock.throwIfLost();
          await lock.release();
          const next = await other.acquire("key", { wait: "5s" });
          await next.release();
        }
      });
    });
  });

  test.each(TRANSACTIONS)("a Client of pg, which stays the user's: %s", async (text) => {
    const client = new Client(fixture.database.url);
    await client.connect();
    onTestFinished(() => client.end());
    const locks = createLocksOn(client);
    await locks.using("key", () => undefined);
    await client.query(text).catch(() => undefined);
    await client.query("select 1").catch(() => undefined); // by its end the client knows what state the server is in
    await expect(locks.tryAcquire("key")).rejects.toThrow("pg: the client is inside a transaction");
    await client.query("rollback");
    await locks.using("key", async () => {
      expect(await other.tryAcquire("key")).toBe(null);
    });
  });
});
