// A grant survives a crash, and locks are kept, whatever another user of the pool has set in its sessions.

import { Pool } from "pg";
import { expect, onTestFinished, test } from "vitest";
import { postgres } from "../../../src/drivers/sql/postgres/driver.ts";
import { createLocks } from "../../../src/index.ts";
import type { Claim, Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const TTL_MS = 2_000;

// the server flushes what no commit waits for as seldom as it may
withPostgres(
  (server) => {
    /** Each is the last thing before the crash: a commit that is flushed flushes all before it. */
    const LAST_CALLS = {
      "a grant of a free key": (driver: Driver) => driver.claim(makeClaim("free")),
      "a grant by a release": (driver: Driver, { holder }: Claims) => driver.release(toReleases(holder)),
      "a renewal": (driver: Driver, { renewed }: Claims) => driver.renew([renewed]),
      "a revocation": (driver: Driver, { token }: Claims) => driver.revoke?.([{ key: "revoked", token, now: true }]),
    } as const;
    interface Claims {
      readonly holder: Claim;
      readonly renewed: Claim;
      readonly token: bigint;
    }
    const READ = `select key, expires - holdfast.holdfast_1_read_clock() > 30000000 as is_fresh
    from holdfast.holdfast_1_claims where token > 0 order by key`;

    test.each(Object.keys(LAST_CALLS) as (keyof typeof LAST_CALLS)[])(
      "synchronous_commit = off in a session: %s survives a crash",
      async (name) => {
        const fixture = await createPostgresFixture(server());
        const pool = new Pool({ connectionString: fixture.database.url, max: 1 });
        // its session ends with the server
        pool.on("error", () => undefined);
        onTestFinished(async () => {
          await pool.end();
          await fixture.close();
        });
        const driver = postgres(pool, { silenceWarnings: ["durability"] });
        await driver.open(NO_EVENTS);
        const [holder, waiting, renewed] = [makeClaim("released"), makeClaim("released"), makeClaim("renewed")];
        for (const claim of [holder, waiting, renewed]) await driver.claim(claim);
        const answer = await driver.claim(makeClaim("revoked"));
        const token = answer.state === "held" ? answer.token : 0n;
        await fixture.database.query(
          "update holdfast.holdfast_1_claims set expires = expires - 55000000 where key = 'renewed'",
        );
        await pool.query("set synchronous_commit = off");
        await LAST_CALLS[name](driver, { holder, renewed, token });
        // read before the crash, so that nothing is written after the call
        const expected = await fixture.database.query(READ);
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
        expect(await fixture.database.query(READ)).toEqual(expected);
        await driver.close();
      },
    );

    // side by side, each in a database of its own
    test.concurrent.for([1, 2])(
      "a pool of %i with a session that only reads: a lock is held for three leases, and another one is acquired and released",
      async (max, { onTestFinished }) => {
        const ownFixture = await createPostgresFixture(server());
        const ownPool = new Pool({ connectionString: ownFixture.database.url, max });
        const locks = createLocks(postgres(ownPool, { silenceWarnings: ["durability"] }), { ttl: `${TTL_MS}ms` });
        onTestFinished(async () => {
          await locks.close();
          await ownPool.end();
          await ownFixture.close();
        });
        const lock = await locks.acquire("key");
        await ownPool.query("set default_transaction_read_only = on");
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
        expect(await ownFixture.inspect()).toEqual([]);
      },
    );
  },
  { settings: { wal_writer_delay: "10000", fsync: "off" } },
);
