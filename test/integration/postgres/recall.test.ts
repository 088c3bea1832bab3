// The option recall: the holder of a lock gets a push when another claim waits for it.

import { Client } from "pg";
import { afterEach, beforeEach, expect, test } from "vitest";
import { postgres } from "../../../src/drivers/sql/postgres/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import { startPgBouncer } from "../../support/stores/pgbouncer.ts";
import type { PostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { createPostgresFixture } from "../../support/stores/postgres-fixture.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

const LISTENERS = "from pg_stat_activity where datname = current_database() and query ~ '^listen'";

withPostgres((server) => {
  let fixture: PostgresFixture;
  beforeEach(async () => {
    fixture = await createPostgresFixture(server());
  });
  afterEach(() => fixture.close());

  const countListeners = async (): Promise<number> =>
    Number((await fixture.database.query(`select count(*)::int as n ${LISTENERS}`))[0]?.n);

  /** Hears every notification to the processes that have claims. */
  async function listen(): Promise<
    { readonly heard: string[]; readonly settle: () => Promise<void> } & AsyncDisposable
  > {
    const heard: string[] = [];
    const ear = new Client(fixture.database.url);
    ear.on("notification", ({ payload }: { readonly payload: string }) => heard.push(payload));
    await ear.connect();
    const inboxes = await fixture.database.query("select distinct inbox from holdfast.holdfast_1_claims");
    for (const { inbox } of inboxes) await ear.query(`listen "${String(inbox)}"`);
    return {
      heard,
      // what was committed before comes before the reply
      settle: async () => void (await ear.query("select 1")),
      [Symbol.asyncDispose]: () => ear.end(),
    };
  }

  test("one notification when a first claim waits, none for those behind it, and none for a claim that does not ask", async () => {
    const [one, other] = [await fixture.open({ recall: true }), await fixture.open()];
    const [asking, silent] = [makeClaim("asking", { recall: true }), makeClaim("silent")];
    await one.driver.claim(asking);
    await one.driver.claim(silent);
    await using ear = await listen();
    const waiting = ["asking", "asking", "silent", "asking", "silent"].map((key) => makeClaim(key));
    for (const claim of waiting) await other.driver.claim(claim);
    await ear.settle();
    expect(ear.heard).toEqual([`${asking.id} recalled`]);
    await other.driver.release(toReleases(...waiting));
    await ear.settle();
    expect(ear.heard).toHaveLength(1);
  });

  test("behind a pooler in session mode that has one session: locks work, and holders learn of waiters when they ask", async () => {
    const pooler = await startPgBouncer(server().port, { mode: "session", poolSize: 1 });
    try {
      const driver = fixture.driver({ recall: true, url: pooler.urlOf(fixture.database.name) });
      const { recall } = await driver.open(NO_EVENTS);
      expect(recall).toBe("recheck");
      expect(await driver.claim(makeClaim("key"))).toMatchObject({ state: "held" });
      await driver.close();
    } finally {
      await pooler.dispose();
    }
  });

  test("without the option holders get no notification, whatever their waiters set", async () => {
    const [one, other] = [await fixture.open(), await fixture.open({ recall: true })];
    const [held, waiting] = [makeClaim("key", { recall: true }), makeClaim("key", { recall: true })];
    await one.driver.claim(held);
    await using ear = await listen();
    expect(await other.driver.claim(waiting)).toMatchObject({ state: "waiting" });
    await other.driver.renew([waiting]);
    await ear.settle();
    expect(ear.heard).toEqual([]);
    expect(await one.driver.renew([held])).toMatchObject([{ state: "held", recalled: true }]);
  });

  test("a grant says that others wait behind it", async () => {
    const [one, other] = [await fixture.open(), await fixture.open({ recall: true })];
    const [first, second, third] = [makeClaim("key"), makeClaim("key", { recall: true }), makeClaim("key")];
    await one.driver.claim(first);
    await other.driver.claim(second);
    await one.driver.claim(third);
    await one.driver.release(toReleases(first));
    await until(() => other.pushes.get(second.id)?.state === "held", { within: 5_000, what: "the grant" });
    expect(other.pushes.get(second.id)).toMatchObject({ state: "held", recalled: true });
  });

  test("the driver listens from its opening on, and again when the connection was ended: an idle lock is given back", async () => {
    const holder = fixture.locks({ ttl: "60s", cache: "60s" }, { recall: true });
    const other = fixture.locks({ ttl: "60s" });
    for (let round = 0; round < 4; round++) {
      await (await holder.acquire(`key ${round}`)).release();
      expect(await countListeners()).toBeGreaterThan(0);
      await fixture.database.query(`select pg_terminate_backend(pid) ${LISTENERS}`);
      await (await other.acquire(`key ${round}`, { wait: "10s" })).release();
      await until(async () => (await countListeners()) > 0, { within: 5_000, what: "a connection that listens" });
    }
  });

  test("where pushes do not arrive, recalls stand in replies", async () => {
    const client = new Client(fixture.database.url);
    await client.connect();
    const single = postgres(client, { recall: true, silenceWarnings: ["durability", "push"] });
    expect(await single.open(NO_EVENTS)).toMatchObject({ recall: "recheck" });
    const { driver } = await fixture.open();
    const [held, waiting] = [makeClaim("key", { recall: true }), makeClaim("key")];
    await single.claim(held);
    await driver.claim(waiting);
    expect(await single.renew([held])).toMatchObject([{ state: "held", recalled: true }]);
    await single.close();
    await client.end();
  });

  test("tables of the revision before get the column, and a process of that revision goes on", async () => {
    const { driver } = await fixture.open();
    const held = makeClaim("key", { recall: true });
    await driver.claim(held);
    const { query } = fixture.database;
    await query("alter table holdfast.holdfast_1_claims drop column recall");
    const parameters = "text, text, int, int, int, bigint, int, bigint, boolean, text, text, bigint";
    await query(`drop function holdfast.holdfast_1_claim(${parameters}, int)`);
    await query(
      `create function holdfast.holdfast_1_claim(${parameters}) returns text language sql as $$ select 'old' $$`,
    );
    await query("update holdfast.holdfast_layout set revision = 4, oldest_caller = 2");
    const upgraded = await fixture.open({ recall: true });
    expect(await upgraded.driver.claim(makeClaim("key"))).toMatchObject({ state: "waiting" });
    expect(await driver.renew([held])).toMatchObject([{ state: "held" }]);
    const id = "a".repeat(26);
    const [row] = await query(
      `select holdfast.holdfast_1_claim('${id}', 'key', 713, 1, 1, 30000, 1, 0, false, '', 'inbox', 0) as reply`,
    );
    expect(row?.reply).toBe("n");
    expect(await fixture.inspect()).toEqual([]);
  });
});
