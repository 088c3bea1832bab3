// Pushes: NOTIFY to the channel of the waiter's process, received on one connection of its own.

import { setTimeout as delay } from "node:timers/promises";
import { Client, Pool } from "pg";
import { afterAll, afterEach, beforeEach, describe, expect, test } from "vitest";
import { postgres } from "../../../src/drivers/sql/postgres/driver.ts";
import { createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import { stopProcess } from "../../../src/torture/processes/process-tree.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const LISTENERS = "from pg_stat_activity where datname = current_database() and query ~ '^listen'";

withPostgres((server) => {
  const countListeners = async ({ database }: PostgresFixture): Promise<number> =>
    Number((await database.query(`select count(*)::int as n ${LISTENERS}`))[0]?.n);

  describe("one at a time", () => {
    let fixture: PostgresFixture;
    beforeEach(async () => {
      fixture = await createPostgresFixture(server());
    });
    afterEach(() => fixture.close());

    test("a grant to another process arrives as its answer, over one connection, however many claims wait", async () => {
      const [holder, waiter] = [await fixture.open(), await fixture.open()];
      const held = Array.from({ length: 20 }, (_, index) => makeClaim(`key ${index}`));
      const waiting = held.map(({ locks: [{ key }] }) => makeClaim(key, { tokenCount: 3 }));
      for (const claim of held) expect((await holder.driver.claim(claim)).state).toBe("held");
      expect(await countListeners(fixture)).toBe(0);
      for (const claim of waiting) expect((await waiter.driver.claim(claim)).state).toBe("waiting");
      await until(() => waiter.missed() === 1, { within: 5_000, what: "the verified connection" });
      expect(await countListeners(fixture)).toBe(1);
      await holder.driver.release(toReleases(...held));
      await until(() => waiter.pushes.size === 20, { within: 5_000, what: "20 grants" });
      for (const claim of waiting) {
        const pushed = waiter.pushes.get(claim.id);
        expect(pushed).toMatchObject({ state: "held", tokenCount: 3 });
        const [renewed] = await waiter.driver.renew([claim]);
        expect(renewed).toMatchObject({ state: "held", token: pushed?.state === "held" ? pushed.token : 0n });
      }
      expect(waiter.missed()).toBe(1);
    });

    test("a notification is sent for a grant to another process, and for nothing else", async () => {
      const [one, other] = [await fixture.open(), await fixture.open()];
      const [first, second, third] = [makeClaim("key"), makeClaim("key"), makeClaim("key")];
      await one.driver.claim(first);
      await one.driver.claim(second);
      await other.driver.claim(third);
      await until(() => one.missed() + other.missed() === 2, { within: 5_000, what: "two listening connections" });
      const channels = (await fixture.database.query(
        "select distinct inbox from holdfast.holdfast_1_claims",
      )) as readonly {
        readonly inbox: string;
      }[];
      const heard: string[] = [];
      const ear = new Client(fixture.database.url);
      ear.on("notification", ({ payload }: { readonly payload: string }) => heard.push(payload));
      await ear.connect();
      for (const { inbox } of channels) {
        // P15: folded to lower case or cut, it would be another channel
        expect(inbox).toMatch(/^hf_1_[a-z0-9]{26}$/);
        await ear.query(`listen "${inbox}"`);
      }
      await one.driver.renew([first, second]);
      await one.driver.claim(makeClaim("key", { wait: false }));
      await one.driver.release(toReleases(first));
      // the grant to a claim of the same process comes with the reply
      await until(() => one.pushes.get(second.id)?.state === "held", {
        within: 5_000,
        what: "the grant to the second",
      });
      await ear.query("select 1");
      expect(heard).toEqual([]);
      await one.driver.release(toReleases(second));
      await until(() => heard.length > 0, { within: 5_000, what: "the notification" });
      expect(heard).toEqual([expect.stringMatching(new RegExp(`^${third.id} \\d+ 1 \\d+$`))]);
      await ear.end();
    });

    test("a listening connection that is ended is opened again; a grant in between is found by a recheck", async () => {
      const [one, other] = [fixture.locks({ ttl: "60s" }), fixture.locks({ ttl: "60s" })];
      const turns: string[] = [];
      for (let round = 0; round < 4; round++) {
        const held = await one.acquire("key");
        const waiting = other.acquire("key", { wait: "20s" });
        await until(async () => (await countListeners(fixture)) > 0, {
          within: 5_000,
          what: "the listening connection",
        });
        await fixture.database.query(`select pg_terminate_backend(pid) ${LISTENERS}`);
        await held.release();
        const next = await waiting;
        turns.push("turn");
        await next.release();
      }
      expect(turns).toHaveLength(4);
      expect(await fixture.inspect()).toEqual([]);
    });

    test("a client that is a single connection receives no pushes, and is rechecked", async () => {
      const client = new Client(fixture.database.url);
      await client.connect();
      const warnings: string[] = [];
      const single = createLocks(postgres(client, { warn: (warning) => warnings.push(warning) }));
      const other = fixture.locks();
      const held = await other.acquire("key");
      const waiting = single.acquire("key", { wait: "10s" });
      await until(async () => (await other.list("key")).length === 2, { within: 5_000, what: "the waiting claim" });
      await held.release();
      await (await waiting).release();
      expect(await countListeners(fixture)).toBe(0);
      expect(warnings.some((warning) => warning.includes("single connection"))).toBe(true);
      await single.close();
      await client.end();
    });

    describe("the payload", () => {
      test("is far below the 8,000 bytes of PostgreSQL, whatever key and label are", async () => {
        const [one, other] = [await fixture.open(), await fixture.open()];
        const key = "ä".repeat(256);
        const [held, waiting] = [makeClaim(key), makeClaim(key, { label: "x".repeat(8_000), tokenCount: 1_000_000 })];
        await one.driver.claim(held);
        await other.driver.claim(waiting);
        await until(() => other.missed() === 1, { within: 5_000, what: "the verified connection" });
        await one.driver.release(toReleases(held));
        await until(() => other.pushes.get(waiting.id)?.state === "held", { within: 5_000, what: "the grant" });
      });
    });
  });

  // most of their time is waiting
  describe.concurrent("together", () => {
    const fixtures: PostgresFixture[] = [];
    afterAll(async () => {
      for (const fixture of fixtures) await fixture.close();
    });
    const openFixture = async (): Promise<PostgresFixture> => {
      const fixture = await createPostgresFixture(server());
      fixtures.push(fixture);
      return fixture;
    };

    test("a listening connection that falls silent is replaced while a claim waits", async () => {
      const fixture = await openFixture();
      const [holder, waiter] = [await fixture.open(), await fixture.open()];
      const [held, waiting] = [makeClaim("key"), makeClaim("key")];
      await holder.driver.claim(held);
      await waiter.driver.claim(waiting);
      await until(() => waiter.missed() === 1, { within: 5_000, what: "the verified connection" });
      const [row] = await fixture.database.query(`select pid::int ${LISTENERS}`);
      stopProcess(Number(row?.pid));
      try {
        // it is silent for 5 s, and its probe is lost for 2 s; renewals tell that the claim still waits
        await until(
          async () => {
            await waiter.driver.renew([waiting]);
            return waiter.missed() === 3;
          },
          { within: 15_000, what: "another verified connection" },
        );
        await holder.driver.release(toReleases(held));
        await until(() => waiter.pushes.get(waiting.id), { within: 5_000, what: "the grant" });
      } finally {
        process.kill(Number(row?.pid), "SIGCONT");
      }
    });

    test("a connection that led to another server than the calls is not taken for one through a pooler", async () => {
      const fixture = await openFixture();
      const elsewhere = await server().freshDatabase();
      const pool = new Pool({ connectionString: fixture.database.url, max: 1 });
      const warnings: string[] = [];
      const driver = postgres(pool, { silenceWarnings: ["durability"], warn: (warning) => warnings.push(warning) });
      const locks = createLocks(driver, { ttl: "60s" });
      const held = await fixture.locks().acquire("key");
      await (await locks.acquire("other key")).release();
      // where the next connections lead; that of the calls stays
      Object.assign(pool.options, { connectionString: elsewhere.url });
      const waiting = locks.acquire("key");
      const isListening = async (): Promise<boolean> => (await elsewhere.query(`select ${LISTENERS}`)).length === 1;
      await until(isListening, { within: 5_000, what: "the connection to the other one" });
      Object.assign(pool.options, { connectionString: fixture.database.url });
      await until(async () => (await countListeners(fixture)) === 1, { within: 10_000, what: "LISTEN" });
      await held.release();
      await (await waiting).release();
      const isPushed = async () => /grants arrive as notifications/.test(JSON.stringify(await driver.diagnose?.()));
      await until(isPushed, { within: 5_000, what: "pushes" });
      expect(warnings).toEqual([]);
      await locks.close();
      await pool.end();
      await elsewhere.drop();
    });

    test("50 waiting claims of a process cost one statement for each third of their lease", async () => {
      const fixture = await openFixture();
      const [holder, waiter] = [fixture.locks({ ttl: "60s" }), fixture.locks({ ttl: "4s" })];
      const keys = Array.from({ length: 50 }, (_, index) => `key ${index}`);
      for (const key of keys) await holder.acquire(key);
      const waiting = keys.map((key) => waiter.acquire(key, { wait: "60s" }));
      const isQueued = async (): Promise<boolean> => (await holder.list("")).length === 100;
      await until(isQueued, { within: 10_000, what: "50 waiting claims" });
      await until(async () => (await countListeners(fixture)) === 1, {
        within: 5_000,
        what: "the listening connection",
      });
      const countCommits = async (): Promise<number> => {
        const [row] = await fixture.database.query(
          "select xact_commit::int as n from pg_stat_database where datname = current_database()",
        );
        return Number(row?.n);
      };
      await delay(1_500); // the statistics of the claims themselves arrive late
      const before = await countCommits();
      await delay(4_000);
      // 3 renewals, a probe of the connection, and what the two queries of this test cost; no 50 of anything
      expect((await countCommits()) - before).toBeLessThan(15);
      await holder.close();
      for (const lock of await Promise.all(waiting)) await lock.release();
    });
  });
});
