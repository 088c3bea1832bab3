// A grant survives a crash, and locks are kept, whatever another user of the pool has set in its sessions.

import { Pool } from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { postgres } from "../../../src/drivers/sql/postgres/driver.ts";
import { createLocks } from "../../../src/index.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { makeClaim } from "../../support/stores/redis-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";
import { until } from "../../support/until.ts";

const TTL_MS = 2_000;

// the server flushes what no commit waits for as seldom as it may
withPostgres(
  (server) => {
    let fixture: PostgresFixture;
    let pool: Pool;
    beforeEach(async () => {
      fixture = await createPostgresFixture(server());
    });
    afterEach(async () => {
      await pool.end();
      await fixture.close();
    });

    const connectPool = (max: number): Pool => {
      pool = new Pool({ connectionString: fixture.database.url, max });
      // its sessions end with the server
      pool.on("error", () => undefined);
      return pool;
    };
    const openOn = async (client: Pool): Promise<Driver> => {
      const driver = postgres(client, { silenceWarnings: ["durability"] });
      await driver.open(NO_EVENTS);
      return driver;
    };

    test("synchronous_commit = off in a session: a grant, a renewal and a revocation survive a crash", async () => {
      const driver = await openOn(connectPool(1));
      const [first, waiting] = [makeClaim("free"), makeClaim("released")];
      const [holder, renewed] = [makeClaim("released"), makeClaim("renewed", { ttlMs: 60_000 })];
      const revoked = makeClaim("revoked");
      for (const claim of [holder, waiting, renewed]) await driver.claim(claim);
      const answer = await driver.claim(revoked);
      await fixture.database.query(
        "update holdfast.holdfast_1_claims set expires = expires - 55000000 where key = 'renewed'",
      );
      await pool.query("set synchronous_commit = off");

      expect(await driver.claim(first)).toMatchObject({ state: "held" });
      expect(await driver.renew([renewed])).toMatchObject([{ state: "held" }]);
      expect(
        await driver.revoke?.([{ key: "revoked", token: answer.state === "held" ? answer.token : 0n, now: true }]),
      ).toEqual([true]);
      expect(await driver.release(toReleases(holder))).toEqual([true]);
      await server().crash();
      await until(
        () =>
          server()
            .start()
            .then(
              () => true,
              () => false,
            ),
        { within: 20_000, what: "the start after the crash" },
      );

      const rows = await fixture.database.query(
        "select key, expires - holdfast.holdfast_1_read_clock() > 30000000 as is_fresh from holdfast.holdfast_1_claims where token > 0 order by key",
      );
      expect(rows).toEqual([
        { key: "free", is_fresh: true },
        { key: "released", is_fresh: true },
        { key: "renewed", is_fresh: true },
      ]);
      await driver.close();
    });

    describe.each([1, 2])("a pool of %i with a session that only reads", (max) => {
      test("a lock is held for three leases, and another one is acquired and released", async () => {
        const locks = createLocks(postgres(connectPool(max), { silenceWarnings: ["durability"] }), {
          ttl: `${TTL_MS}ms`,
        });
        const lock = await locks.acquire("key");
        await pool.query("set default_transaction_read_only = on");
        const startedAt = performance.now();
        let count = 0;
        await until(
          async () => {
            await (await locks.acquire("other")).release();
            count++;
            return performance.now() - startedAt > 3 * TTL_MS;
          },
          { within: 4 * TTL_MS, what: "three leases" },
        );
        expect(count).toBeGreaterThan(20);
        lock.throwIfLost();
        expect(await lock.release()).toBe(true);
        expect(await fixture.inspect()).toEqual([]);
        await locks.close();
      });
    });
  },
  { settings: { wal_writer_delay: "10000", fsync: "off" } },
);
