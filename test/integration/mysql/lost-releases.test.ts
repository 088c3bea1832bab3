/** Releases that a promoted replica has missed: the database has claims that are gone, and their processes release them again. */

import { afterEach, beforeEach, expect, test } from "vitest";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import type { TcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { expectFreeSoon, failOver, SOON_MS, useOtherLock } from "../../support/stores/lost-releases.ts";
import type { MysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { createMysqlFixture } from "../../support/stores/mysql-fixture.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

const KEY = "a key with ünïcode";
const CLAIMS = "holdfast_4_claims";
/** The row of a bucket has the claim that is alone in it. */
const BUCKETS = "holdfast_4_buckets";

withMariaDb((server) => {
  let fixture: MysqlFixture;
  let clients: Locks[];
  let proxy: TcpProxy;
  beforeEach(async () => {
    fixture = createMysqlFixture(await server().freshDatabase());
    proxy = await tcpProxy({ host: "127.0.0.1", port: server().port });
    clients = [];
  });
  afterEach(async () => {
    for (const locks of clients) await locks.close();
    await fixture.close();
    await proxy.close();
  });

  const query = (text: string) => fixture.database.query(text);
  const openClient = (session: readonly string[] = []): Locks => {
    const { port } = proxy.address as { readonly port: number };
    const uri = fixture.database.url.replace(`:${server().port}/`, `:${port}/`);
    const locks = createLocks(fixture.driver({ session, pool: { uri } }));
    clients.push(locks);
    return locks;
  };
  const countWaiting = async (): Promise<number> =>
    Number((await query(`select count(*) as n from ${CLAIMS} where token = 0`))[0]?.n);
  async function keepClaims(): Promise<void> {
    await query(`create table kept_claims as select * from ${CLAIMS}`);
    await query(`create table kept_buckets as select * from ${BUCKETS}`);
  }

  /** Puts the claims back as they were kept: the new primary has missed what followed. */
  async function bringBack(): Promise<void> {
    for (const text of [
      `insert ignore into ${CLAIMS} select * from kept_claims`,
      `replace into ${BUCKETS} select * from kept_buckets`,
    ])
      await until(() => query(text).then(() => true, isDeadlock), { within: SOON_MS, what: "the rows to be back" });
  }

  /** A call that was cut off may still be executed: it locks rows in another order. */
  function isDeadlock(error: unknown): false {
    if (!String(error).includes("Deadlock")) throw error;
    return false;
  }

  test("of a holder, on connections without autocommit", async () => {
    const [one, other] = [openClient(["set autocommit = 0"]), openClient()];
    const lock = await one.acquire(KEY);
    await useOtherLock(other);
    await keepClaims();
    await lock.release();
    await failOver(proxy, [one, other], bringBack);
    await expectFreeSoon(other, KEY);
    expect(await query(`select id from ${CLAIMS} union all select id from ${BUCKETS} where form = 'lone'`)).toEqual([]);
    expect(await query("select * from information_schema.innodb_trx")).toEqual([]);
  });

  test("of a waiter, whose holder is gone, too", async () => {
    const [one, other, third] = [openClient(), openClient(), openClient()];
    await useOtherLock(third);
    const lock = await one.acquire(KEY);
    const controller = new AbortController();
    const waiting = other.acquire(KEY, { signal: controller.signal });
    await until(async () => (await countWaiting()) === 1, { within: SOON_MS, what: "the waiter" });
    await keepClaims();
    controller.abort(new Error("given up"));
    await expect(waiting).rejects.toThrow("given up");
    await lock.release();
    await until(async () => (await countWaiting()) === 0, { within: SOON_MS, what: "its end" });
    await failOver(proxy, [one, other], bringBack);
    await expectFreeSoon(third, KEY);
  });
});
